use super::*;
use crate::judge::graph::Sight;

fn party(name: &str) -> Party {
    match name {
        "external" => Party::External,
        name if name.starts_with("node-") => Party::Node(name.into()),
        name => Party::Pod(name.into()),
    }
}

/// `a>b` bad, `a+b` good, `a?b` too few samples.
fn graph(sights: &str) -> Graph {
    let sight = |text: &str| {
        let at = text.find(['>', '+', '?']).unwrap();
        let level = match &text[at..=at] {
            ">" => Level::Bad,
            "+" => Level::Good,
            _ => Level::Few,
        };
        let pair = (party(&text[..at]), party(&text[at + 1..]));
        (pair, Sight { level, value: 0.0, samples: 100 })
    };
    Graph { sights: sights.split_whitespace().map(sight).collect() }
}

const SCENARIOS: &[(&str, &str, &str, &str)] = &[
    (
        "a fault at one server's door, seen by four clients",
        "c1>s1 c2>s1 c3>s1 c4>s1 c1+s2 c2+s2 c3+s2 c4+s2",
        "s1:peers",
        "",
    ),
    (
        "the same, with the server's own retransmissions towards some of them",
        "c1>s1 c2>s1 c3>s1 c4>s1 c1+s2 c2+s2 c3+s2 c4+s2 s1>c1 s1>c2 s1+c3 s1+c4",
        "s1:peers",
        "",
    ),
    (
        "what a server sends is lost: its own view shows it",
        "s1>c1 s1>c2 s1>c3 c1+s1 c2+s1 s2+c1",
        "s1:own",
        "",
    ),
    ("a client's fault shows towards both servers", "c1>s1 c1>s2 c2+s1 c2+s2", "c1:own", ""),
    (
        "two broken servers do not blame their clients",
        "c1>s1 c2>s1 c3>s1 c1>s2 c2>s2 c3>s2 s1>c1 s2>c1",
        "s1:peers s2:peers",
        "",
    ),
    ("one pair alone blames nobody", "a>b", "", "a b"),
    ("one witness that is well towards two others blames", "a>b a+c a+d", "b:peers", ""),
    ("one witness that is well towards one other does not", "a>b a+c", "", "a b"),
    ("a witness that sees others bad too is not believed", "a>b a>c a+d a+e", "a:own", ""),
    ("three servers, one faulted, one client", "c>s1 c+s2 c+s3", "s1:peers", ""),
    ("outside addresses are one peer", "a>external", "", "a"),
    ("outside and a pod are two", "a>external a>b", "a:own", ""),
    (
        "where everybody sees everybody bad nobody can tell",
        "a>c a>d b>c b>d c>a c>b d>a d>b",
        "",
        "a b c d",
    ),
    ("two that both their peers see bad are blamed", "a>c a>d b>c b>d", "c:peers d:peers", ""),
    ("too few samples say nothing", "a?b c?b", "", ""),
    ("nodes vote with pods", "a>b node-1>b", "b:peers", ""),
];

#[test]
fn blame_falls_where_the_votes_say() {
    for (scenario, sights, expected, unexplained) in SCENARIOS {
        let blamed = blame(&graph(sights));
        let shown: Vec<String> = blamed
            .pods
            .iter()
            .map(|(pod, blame)| {
                let view = if blame.view == View::Own { "own" } else { "peers" };
                format!("{pod}:{view}")
            })
            .collect();
        assert_eq!(shown.join(" "), *expected, "{scenario}");
        let shown: Vec<String> = blamed.unexplained.keys().map(ToString::to_string).collect();
        assert_eq!(shown.join(" "), *unexplained, "{scenario}");
    }
}
