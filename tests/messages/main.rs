//! What a user reads when something is wrong: 66 plausible mistakes, the answer to each of them as text (`said/`), and a
//! score beside it. And what rustc says of wrong types (`fail/types/`).
//!
//! Scores: 0 crash, hang or silent wrong result; 1 an error without the user's place, or in internal words; 2 the right
//! place and cause; 3 with the shapes or types involved, and the way out. What simply works as meant counts 3.
//!
//! `cargo test --test messages -- score --nocapture` prints the table and the sum; `CUTLET_BLESS=1 cargo test --test
//! messages` writes what is said now into `said/`, for a person to read.

mod flow;
mod launches;
mod machine;
mod rustc;
mod said;
mod shapes;

use said::{Case, Group};

const GROUPS: [Group; 4] = [
    Group { name: "shapes", about: "shapes and types of tiles", cases: &shapes::CASES },
    Group { name: "flow", about: "control flow and tracing", cases: &flow::CASES },
    Group { name: "launches", about: "launches and arguments", cases: &launches::CASES },
    Group { name: "machine", about: "targets, resources, machine", cases: &machine::CASES },
];

#[test]
fn shapes_and_types() {
    said::compare(&GROUPS[0]);
}

#[test]
fn control_flow() {
    said::compare(&GROUPS[1]);
}

#[test]
fn launches_and_arguments() {
    said::compare(&GROUPS[2]);
}

#[test]
fn targets_and_machine() {
    said::compare(&GROUPS[3]);
}

#[test]
fn types() {
    said::compare_texts("types", rustc::of_types());
}

#[test]
fn score() {
    let all: Vec<&Case> = GROUPS.iter().flat_map(|group| group.cases).collect();
    let sum: u32 = all.iter().map(|case| case.score).sum();
    for group in &GROUPS {
        let of_group: u32 = group.cases.iter().map(|case| case.score).sum();
        println!("{:>4} of {:>3}  {}", of_group, 3 * group.cases.len(), group.about);
        for case in group.cases.iter().filter(|case| case.score < 3) {
            println!("             {} for {}", case.score, case.title);
        }
    }
    println!("{sum:>4} of {:>3}  in all", 3 * all.len());
    assert_eq!(all.len(), 66);
}
