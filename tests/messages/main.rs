//! Messages to users: 66 plausible mistakes and 55 of first users, with the text of each message
//! (`said/`) and its score. Also the errors of rustc for wrong types (`fail/types/`).
//!
//! Scores:
//!
//! * 0: crash, hang or silent wrong result;
//! * 1: an error without the user's place, or in internal words;
//! * 2: the right place and cause;
//! * 3: with the shapes or types involved, and the fix.
//!
//! Code that works as intended has score 3.
//!
//! `cargo test --test messages -- score --nocapture` prints the table, the sums and the means;
//! `CUTLET_BLESS=1 cargo test --test messages` writes the current messages into `said/`, for review
//! by a person.

mod flow;
mod launches;
mod machine;
mod newcomers;
mod rustc;
mod said;
mod shapes;

use said::{Case, Group};

/// The groups of the 66 mistakes, and those of the 55.
const GROUPS: [Group; 9] = [
    Group { name: "shapes", about: "shapes and types of tiles", cases: &shapes::CASES },
    Group { name: "flow", about: "control flow and tracing", cases: &flow::CASES },
    Group { name: "launches", about: "launches and arguments", cases: &launches::CASES },
    Group { name: "machine", about: "targets, resources, machine", cases: &machine::CASES },
    Group { name: "new_types", about: "first users: types, shapes", cases: &newcomers::TYPES },
    Group { name: "new_flow", about: "first users: control flow", cases: &newcomers::FLOW },
    Group { name: "new_launches", about: "first users: launch", cases: &newcomers::LAUNCHES },
    Group { name: "new_layouts", about: "first users: layouts, hints, limits", cases: &newcomers::LAYOUTS },
    Group { name: "new_steps", about: "first users: ecosystem, first steps", cases: &newcomers::FIRST_STEPS },
];

/// Number of groups of the 66 mistakes.
const OLD: usize = 4;

/// The least sum of the 66 mistakes, and the least mean of the 55.
const MIN_KNOWN: u32 = 185;
const MIN_NEW: f64 = 2.6;

/// Cases below 2: rustc alone answers, before it knows of this crate. `docs/common_errors.md` has a
/// row for each.
const BY_RUSTC: [&str; 1] = ["the prelude is forgotten"];

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
fn types_of_first_users() {
    said::compare(&GROUPS[4]);
}

#[test]
fn control_flow_of_first_users() {
    said::compare(&GROUPS[5]);
}

#[test]
fn launches_of_first_users() {
    said::compare(&GROUPS[6]);
}

#[test]
fn layouts_of_first_users() {
    said::compare(&GROUPS[7]);
}

#[test]
fn first_steps() {
    said::compare(&GROUPS[8]);
}

#[test]
fn types() {
    said::compare_texts("types", rustc::of_types());
}

/// Maximum number of lines that rustc prints for a wrong argument of a launch, with all notes.
///
/// Most messages have 27 lines. Four lines are notes of this crate, and the others are of rustc:
///
/// * 8: the message with the code,
/// * 2: the trait, and its tuple,
/// * 5: the implementation for `Constant`, which is recommended for the message of its bound,
/// * 8: the bound of `launch`.
///
/// An implementation by `impl_kernel_args!` in the program adds 6, a suggestion 4.
const MAX_LINES: usize = 38;

#[test]
fn wrong_arguments_are_short() {
    let files = ["launches", "new_launches", "types/arguments_that_do_not_arrive"];
    let said: Vec<(String, usize)> = files.into_iter().flat_map(rustc::wrong_arguments).collect();
    assert!(said.len() >= 10, "{} messages", said.len());
    for (first, lines) in said {
        println!("{lines} lines: {first}");
        assert!(lines <= MAX_LINES, "{lines} lines: {first}");
    }
}

/// The sum of the scores of cases, how many there are, and how many have each score.
fn tally<'c>(cases: impl Iterator<Item = &'c Case>) -> (u32, usize, [usize; 4]) {
    let mut numbers = [0; 4];
    cases.for_each(|case| numbers[case.score as usize] += 1);
    let sum = numbers.iter().enumerate().map(|(score, count)| score * count).sum::<usize>();
    (sum as u32, numbers.iter().sum(), numbers)
}

fn print_row(about: &str, (sum, count, numbers): (u32, usize, [usize; 4])) {
    let mean = f64::from(sum) / count as f64;
    let [none, one, two, three] = numbers;
    println!(
        "| {about:<38} | {count:>5} | {sum:>3} of {:>3} | {mean:.2} | {none} | {one} | {two:>2} | {three:>2} |",
        3 * count
    );
}

#[test]
fn score() {
    println!("| cases                                  | count | sum        | mean | 0 | 1 |  2 |  3 |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, groups, count) in [("all known", &GROUPS[..OLD], 66), ("all of first users", &GROUPS[OLD..], 55)] {
        for group in groups {
            print_row(group.about, tally(group.cases.iter()));
        }
        let all = tally(groups.iter().flat_map(|group| group.cases));
        print_row(name, all);
        assert_eq!(all.1, count);
        for case in groups.iter().flat_map(|group| group.cases).filter(|case| case.score < 2) {
            assert!(BY_RUSTC.contains(&case.title), "below 2: {}", case.title);
        }
        let mean = f64::from(all.0) / count as f64;
        match name {
            "all known" => assert!(all.0 >= MIN_KNOWN, "{} of the known cases, less than {MIN_KNOWN}", all.0),
            _ => assert!(mean >= MIN_NEW, "a mean of {mean:.2} of first users, less than {MIN_NEW}"),
        }
    }
    println!("below 3:");
    for group in &GROUPS {
        for case in group.cases.iter().filter(|case| case.score < 3) {
            println!("  {}: {}: {}", case.score, group.about, case.title);
        }
    }
}
