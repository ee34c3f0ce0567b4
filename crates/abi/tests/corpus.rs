//! The fuzzer's entry over its corpus, and every prefix of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../fuzz/entries/decode.rs"]
mod entry;

#[test]
fn no_bytes_of_the_corpus_make_it_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/decode");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for length in 0..=bytes.len() {
            entry::run(&bytes[..length]);
        }
        count += 1;
    }
    assert!(count > 0, "the corpus is empty");
}
