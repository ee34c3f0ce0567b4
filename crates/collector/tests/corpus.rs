//! The fuzzer's entries over their corpora.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../fuzz/entries/filters.rs"]
mod filters;
#[path = "../../../fuzz/entries/ingest.rs"]
mod ingest;

fn over(target: &str, run: fn(&[u8])) {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
    let mut count = 0;
    for file in std::fs::read_dir(format!("{corpus}/{target}")).unwrap() {
        run(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "the corpus of {target} is empty");
}

#[test]
fn no_stream_of_the_corpus_makes_the_collector_panic() {
    over("ingest", ingest::run);
}

#[test]
fn no_filter_of_the_corpus_makes_the_collector_panic() {
    over("filters", filters::run);
}
