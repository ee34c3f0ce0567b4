//! Waits between attempts: exponential, with jitter, so that many clients do not come back at once.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Exponential backoff from `first` up to `most`, doubled each time.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// A backoff that begins at `first` and never waits longer than `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// After a success: begins anew.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// How long to wait now: between half of the present step and the whole of it.
    pub fn next_wait(&mut self) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.most);
        let half = step / 2;
        half + half.mul_f64(random_fraction())
    }
}

/// In [0, 1). The standard library's hasher keys are random per call; jitter needs no more.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 40;
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit an f64 exactly")]
    let fraction = bits as f64 / f64::from(1_u32 << 24);
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_begin_anew_after_a_success() {
        let (first, most) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, most);
        for step in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next_wait();
            let step = Duration::from_millis(step);
            assert!(step / 2 <= wait && wait <= step, "{wait:?} for a step of {step:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= first);
    }
}
