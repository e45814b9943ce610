//! Order barriers in every interleaving of the consumer groups, from the instructions themselves.

use std::collections::{BTreeMap, HashSet};

use super::super::check;
use super::super::data_partition::whole;
use super::super::deferred_load::{scaled, scaled_tiles};
use crate::backend::ptx::hardware::{WARP_GROUP_WARPS, WARP_SIZE};

/// Barrier number, and whether the group waits there or only arrives.
type BarrierEvent = (u32, bool);

/// Barrier events of the warps of one group in the consumer program. Each loop with MMAs has
/// `rounds` iterations.
struct Program<'a> {
    lines: Vec<&'a str>,
    group: u32,
    rounds: usize,
}

impl Program<'_> {
    fn events(&self) -> Vec<BarrierEvent> {
        let line_of = |what: &str| self.lines.iter().position(|line| line.contains(what)).unwrap();
        let mut events = Vec::new();
        self.walk(line_of("setmaxnreg.inc"), line_of("setmaxnreg.dec"), &mut events);
        events
    }

    fn walk(&self, start: usize, end: usize, events: &mut Vec<BarrierEvent>) {
        let mut at = start;
        while at < end {
            if let Some(back) = self.lines[at].strip_suffix(':').and_then(|label| self.loop_end(at, end, label)) {
                (0..self.rounds).for_each(|_| self.walk(at + 1, back, events));
                at = back;
            }
            events.extend(self.event(at));
            at += 1;
        }
    }

    /// Returns the back edge to a label, if MMAs are between.
    fn loop_end(&self, at: usize, end: usize, label: &str) -> Option<usize> {
        let back = (at..end).rev().find(|&line| self.lines[line].ends_with(&format!(" {label};")))?;
        self.lines[at..back].iter().any(|line| line.contains("wgmma.commit_group")).then_some(back)
    }

    fn event(&self, at: usize) -> Option<BarrierEvent> {
        let (guard, rest) = self.lines[at].split_once("barrier.cta.")?;
        let (kind, operands) = rest.split_once(".aligned ")?;
        let barrier = operands.split([',', ';']).next()?;
        let comes = guard.trim().strip_prefix('@').is_none_or(|guard| self.number(guard, at) == 1);
        // All warps of the kernel wait at barrier 0 first.
        let barrier = self.number(barrier, at) as u32;
        (comes && barrier != 0).then_some((barrier, kind == "sync"))
    }

    /// Returns the value of a register or immediate, computed from constants and the group index.
    fn number(&self, operand: &str, at: usize) -> i64 {
        if let Ok(number) = operand.parse() {
            return number;
        }
        if operand == "%tid.x" {
            return i64::from(self.group * WARP_GROUP_WARPS * WARP_SIZE);
        }
        let is_made =
            |line: &&&str| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(&format!("{operand}, ")));
        let made = self.lines[..at].iter().rev().find(is_made).unwrap();
        let (code, operands) = made.trim_end_matches(';').split_once(' ').unwrap();
        // Exponentials are not negative. Barriers depend on their sign alone.
        if code.starts_with("ex2") {
            return 0;
        }
        let operands: Vec<&str> = operands.split(", ").skip(1).collect();
        // A shuffle returns the value of the first lane, which is the simulated one.
        let count = if code.starts_with("shfl") { 1 } else { operands.len() };
        let numbers: Vec<i64> = operands[..count].iter().map(|operand| self.number(operand, at)).collect();
        match (code.split('.').next().unwrap(), &numbers[..]) {
            ("mov" | "shfl", &[x]) => x,
            ("add", &[x, y]) => x + y,
            ("sub", &[x, y]) => x - y,
            ("shr", &[x, y]) => x >> y,
            ("setp", &[x, y]) => i64::from(x == y),
            ("selp", &[x, y, which]) => {
                if which == 1 {
                    x
                } else {
                    y
                }
            }
            _ => panic!("{made}"),
        }
    }
}

/// Positions of the groups, waiting groups, and arrivals at incomplete barriers.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    next: Vec<usize>,
    waits: Vec<Option<u32>>,
    came: BTreeMap<u32, usize>,
}

/// Returns a fault of any interleaving of the groups. Two groups share a barrier.
fn fault(programs: &[Vec<BarrierEvent>]) -> Option<String> {
    let count = programs.len();
    let start = State { next: vec![0; count], waits: vec![None; count], came: BTreeMap::new() };
    let (mut seen, mut pending) = (HashSet::new(), vec![start]);
    while let Some(state) = pending.pop() {
        let runs = |group: usize| state.waits[group].is_none() && state.next[group] < programs[group].len();
        if !(0..count).any(runs) && (0..count).any(|group| state.waits[group].is_some()) {
            return Some(format!("groups wait forever after {:?} steps", state.next));
        }
        for group in (0..count).filter(|&group| runs(group)) {
            let (mut after, (barrier, waits)) = (state.clone(), programs[group][state.next[group]]);
            after.next[group] += 1;
            after.waits[group] = waits.then_some(barrier);
            match after.came.remove(&barrier) {
                Some(other) if other == group => {
                    return Some(format!("group {group} reaches barrier {barrier} twice"));
                }
                Some(_) => {
                    after.waits.iter_mut().filter(|waits| **waits == Some(barrier)).for_each(|waits| *waits = None)
                }
                None => drop(after.came.insert(barrier, group)),
            }
            if seen.insert(after.clone()) {
                pending.push(after);
            }
        }
    }
    None
}

#[test]
fn no_group_overtakes_the_other_one() {
    for (module, groups) in [(scaled(false, 128, 128), 2), (scaled_tiles(128), 2), (whole(128), 2), (whole(192), 3)] {
        let text = check(&module).pop().unwrap().text;
        let program = |group| Program { lines: text.lines().map(str::trim).collect(), group, rounds: 3 }.events();
        let programs: Vec<Vec<BarrierEvent>> = (0..groups).map(program).collect();
        let turns = |events: &[BarrierEvent]| events.iter().filter(|(_, waits)| !waits).count();
        assert!(programs.iter().all(|events| turns(events) >= 3), "{programs:?}");
        assert_eq!(fault(&programs), None, "{programs:?}\n{text}");
    }
}

#[test]
fn order_barriers_that_restart_at_each_loop_are_found() {
    // Two loops with one order: the second group arrives before each of them, and the first one
    // waits after each of them.
    let first = [(3, true), (4, false), (3, true)].repeat(2);
    let second = [(3, false), (4, true), (3, false)].repeat(2);
    assert!(fault(&[first.clone(), second.clone()]).is_some_and(|fault| fault.contains("twice")));
    assert_eq!(fault(&[first[..3].to_vec(), second[..3].to_vec()]), None);
    assert!(fault(&[first[..3].to_vec(), second[1..3].to_vec()]).is_some_and(|fault| fault.contains("forever")));
}
