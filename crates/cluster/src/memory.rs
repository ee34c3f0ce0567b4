//! Answers that are believed until their time, at most so many.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

/// When it is full and nothing in it is over, a new answer is not remembered: it is asked for again.
#[derive(Debug)]
pub(crate) struct Memory<K, V> {
    capacity: usize,
    known: Mutex<HashMap<K, Known<V>>>,
}

#[derive(Debug)]
struct Known<V> {
    answer: V,
    until_ns: u64,
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { capacity, known: Mutex::default() }
    }

    /// The answer, if it is known and holds at `now_ns`.
    pub(crate) fn get(&self, key: &K, now_ns: u64) -> Option<V> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| now_ns < known.until_ns).map(|known| known.answer.clone())
    }

    /// Notes an answer that holds until `until_ns`.
    pub(crate) fn put(&self, key: K, answer: V, now_ns: u64, until_ns: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.capacity {
            known.retain(|_, known| now_ns < known.until_ns);
        }
        if known.len() < self.capacity || known.contains_key(&key) {
            known.insert(key, Known { answer, until_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_until_its_time_and_a_full_memory_takes_none() {
        let memory = Memory::with_capacity(2);
        memory.put("a", 1, 0, 10);
        memory.put("b", 2, 0, 20);
        memory.put("c", 3, 0, 30);
        assert_eq!((memory.get(&"a", 9), memory.get(&"a", 10)), (Some(1), None));
        assert_eq!(memory.get(&"c", 1), None);
        memory.put("c", 3, 10, 30);
        assert_eq!((memory.get(&"b", 10), memory.get(&"c", 10)), (Some(2), Some(3)));
    }
}
