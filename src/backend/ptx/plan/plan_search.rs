//! Which of several plans of a kernel: the usual one, or another that the hints leave open and that costs less.
//!
//! The usual plan is that of `plan` and of the passes of `schedule`. Where a loop multiplies matrices by instructions that run on their own,
//! schedules for fewer and for more warps are made, too (and so with teams or without), and without streams, and what each costs says
//! the cost model (`cost`). Another plan is taken only if it costs less by a margin: the model errs, and the usual plan is one that was measured.
//! With `CUTLET_REMARKS` more is costed and said: stages, an occupancy of 2, no ping-pong. Blocks that share a multiprocessor are never
//! asked for: how many blocks there are is the grid's affair, and a single one of them has registers for half of what it could do. So a plan
//! that gains by letting more blocks in is taken only if it is as good without them, and not where the kernel asks for the number of blocks, as
//! persistent ones do.

use super::super::cost::{Cost, CostInput, LaunchInfo, weights};
use super::super::{Choice, CompileOptions, lower};
use super::num_warps;
use super::prepare::build_with;
use crate::ir::{Attr, AttrKind, Entry, Module, OpId, Opcode, hint_key};
use crate::target::Target;

/// Another plan has to cost less by this part. Of recorded configurations that differ in their warps alone (`benches/compare/h200.tune`,
/// `benches/schedules --records --verbose`) the model promises up to 10 % where nothing is gained (products of tf32).
const MARGIN: f64 = 0.15;
/// Registers of a thread that sums apart take.
const APART_REGISTERS: u32 = 64;
/// A unit that is busy for less than this part of the time is not what a plan waits for.
const BUSY: f64 = 0.75;

/// Hints of loops and loads that say how tiles come.
const HOW_TO_LOAD: [&str; 4] = [hint_key::NUM_STAGES, hint_key::WARP_SPECIALIZE, "latency", "allow_tma"];

/// What was chosen.
pub struct Chosen {
    pub options: CompileOptions,
    /// What was considered, a line each, for people.
    pub considered: Vec<String>,
}

/// A plan that is considered.
struct Alternative {
    what: String,
    options: CompileOptions,
    /// May it be chosen?
    likely: bool,
}

/// What became of one.
enum Outcome {
    Costs(Box<Costed>),
    Fails(String),
}

/// What a plan costs.
struct Costed {
    cost: Cost,
    /// Cycles of a tile block and multiprocessor if no more blocks share it than of the usual plan.
    alike: f64,
    /// Warps of a team, and teams.
    form: (u32, u32),
    /// May it be chosen by that?
    sure: bool,
}

impl Costed {
    /// What it would be chosen by, instead of a plan that takes so many cycles. `counted`: the kernel knows how many blocks there are.
    fn instead_of(&self, usual: f64, counted: bool) -> Option<f64> {
        match counted {
            true => Some(self.alike),
            false => Some(self.cost.each()).filter(|_| self.alike < usual * (1.0 + MARGIN)),
        }
    }
}

/// Chooses the plan of an entry.
pub fn choose(module: &Module, entry: &Entry, target: Target, options: &CompileOptions) -> Chosen {
    let usual = CompileOptions { choice: Choice::Nothing, ..*options };
    let mut chosen = Chosen { options: usual, considered: Vec::new() };
    let able = target.arch == 90 && target.accelerated;
    let said = options.choice == Choice::Said;
    if options.choice == Choice::Nothing || !(able || said) || !multiplies_in_loops(module, entry) {
        return chosen;
    }
    let warps = num_warps::num_warps(module, entry.body, options);
    let alternatives = alternatives(&usual, warps, (able, said), says_how_to_load(module, entry));
    if alternatives.is_empty() {
        return chosen;
    }
    let Outcome::Costs(first) = outcome(module, entry, (target, &usual), None) else { return chosen };
    // Where a unit has to do the same whatever the plan, and does it nearly all the time, nothing is to be gained.
    if !said && (!first.sure || first.cost.bound > 1.0 - MARGIN) {
        return chosen;
    }
    let blocks = Some(first.cost.blocks);
    let all = alternatives.iter().map(|alternative| outcome(module, entry, (target, &alternative.options), blocks));
    let outcomes: Vec<Outcome> = all.collect();
    let (usual, counted) = (first.cost.each(), counts_blocks(module, entry));
    let able = alternatives.iter().zip(&outcomes).map(|(alternative, outcome)| match outcome {
        Outcome::Costs(other) if first.sure && other.sure && alternative.likely => other.instead_of(usual, counted),
        _ => None,
    });
    let best = cheapest(usual, able).map(|(index, _)| index);
    if let Some(index) = best {
        chosen.options = alternatives[index].options;
    }
    if said {
        chosen.considered = considered(&first, &alternatives, &outcomes, best);
    }
    chosen
}

/// What was considered, a line each; `best`: the number of the one that is taken, if it is not the usual one.
fn considered(first: &Costed, all: &[Alternative], outcomes: &[Outcome], best: Option<usize>) -> Vec<String> {
    let taken = match best.map(|index| &outcomes[index]) {
        Some(Outcome::Costs(best)) => best.cost.each(),
        _ => first.cost.each(),
    };
    let form = warps_text(first.form);
    let mut lines = vec![line(&format!("default ({form})"), &first.cost, (taken, best.is_none()))];
    let mut costs = vec![first.cost.each()];
    for (index, (alternative, outcome)) in all.iter().zip(outcomes).enumerate() {
        lines.push(match outcome {
            // The same schedule.
            Outcome::Costs(other) if costs.contains(&other.cost.each()) => continue,
            Outcome::Costs(other) => {
                costs.push(other.cost.each());
                let form = warps_text(other.form);
                let named = form.contains(&alternative.what);
                let what = if named { form } else { format!("{}, {form}", alternative.what) };
                line(&what, &other.cost, (taken, best == Some(index)))
            }
            Outcome::Fails(why) => format!("{}: {why}", alternative.what),
        });
    }
    lines
}

/// Does a kernel ask how many tile blocks there are?
fn counts_blocks(module: &Module, entry: &Entry) -> bool {
    let mut counts = false;
    module.walk(entry.body, &mut |id| counts |= module.op(id).code == Opcode::GetNumTileBlocks);
    counts
}

/// The cheapest one of those that may be taken instead of the usual one, if it is cheap enough; its cost.
fn cheapest(usual: f64, able: impl Iterator<Item = Option<f64>>) -> Option<(usize, f64)> {
    let costs = able.enumerate().filter_map(|(index, cost)| Some((index, cost?)));
    costs.filter(|(_, cost)| *cost < usual * (1.0 - MARGIN)).min_by(|a, b| a.1.total_cmp(&b.1))
}

fn warps_text((warps, teams): (u32, u32)) -> String {
    if teams > 1 { format!("{teams} x {warps} warps (ping-pong)") } else { format!("{warps} warps") }
}

/// What is said of a plan, next to the cycles of the one that is taken.
fn line(what: &str, cost: &Cost, (taken, this): (f64, bool)) -> String {
    let busiest = cost.busy.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share >= BUSY);
    let waits = match busiest {
        Some((unit, share)) => format!("{unit} {:.0} % utilized", 100.0 * share),
        None => "latency-bound".to_owned(),
    };
    let what = format!("{what}: {:.0} cycles per block, {waits}", cost.each());
    if this {
        return format!("{what}; selected");
    }
    let more = 100.0 * (cost.each() / taken - 1.0);
    let margin = 100.0 * MARGIN;
    match more {
        ..0.0 if -more < margin => format!("{what}; {:.1} % less, within the margin of {margin:.0} %", -more),
        ..0.0 => format!(
            "{what}; {:.1} % less, selected by hints alone: the model may err, or more blocks are required",
            -more
        ),
        _ => format!("{what}; {more:.1} % more"),
    }
}

/// Are there products in a loop?
fn multiplies_in_loops(module: &Module, entry: &Entry) -> bool {
    let mut loops: Vec<OpId> = Vec::new();
    module.walk(entry.body, &mut |id| {
        if matches!(module.op(id).code, Opcode::For | Opcode::Loop) {
            loops.push(id);
        }
    });
    let mut found = false;
    for region in loops.into_iter().flat_map(|id| &module.op(id).regions) {
        module.walk(*region, &mut |id| found |= matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI));
    }
    found
}

/// Does the user say of a loop or a load how tiles come?
fn says_how_to_load(module: &Module, entry: &Entry) -> bool {
    let mut says = false;
    module.walk(entry.body, &mut |id| {
        let Some(Attr::Hints(hints)) = module.op(id).attr(AttrKind::Hints) else { return };
        says |= hints.0.iter().flat_map(|(_, all)| all).any(|(key, _)| HOW_TO_LOAD.contains(&&**key));
    });
    says
}

/// Plans that hints leave open. `able`: on this target measurements say how good the model is.
fn alternatives(usual: &CompileOptions, warps: u32, (able, said): (bool, bool), hinted: bool) -> Vec<Alternative> {
    let mut all = Vec::new();
    let mut add = |what: String, options: CompileOptions, likely: bool| {
        if likely || said {
            all.push(Alternative { what, options, likely });
        }
    };
    if usual.num_warps.is_none() {
        for other in [warps / 2, 2 * warps].into_iter().filter(|other| (4..=16).contains(other)) {
            add(format!("{other} warps"), CompileOptions { num_warps: Some(other), ..*usual }, able);
        }
    }
    if usual.teams {
        let num_warps = Some(usual.num_warps.unwrap_or(4.min(warps)));
        add("no ping-pong".to_owned(), CompileOptions { num_warps, teams: false, ..*usual }, false);
    }
    if usual.stages.is_none() {
        for stages in [2, 3] {
            add(format!("{stages} stages"), CompileOptions { stages: Some(stages), ..*usual }, false);
        }
    }
    if usual.occupancy.is_none() {
        let occupancy = Some(2);
        add("occupancy 2".to_owned(), CompileOptions { occupancy, ..*usual }, false);
    }
    if usual.tma && able {
        let likely = !hinted && usual.stages.is_none();
        add("no TMA".to_owned(), CompileOptions { tma: false, ..*usual }, likely);
    }
    all
}

/// What becomes of a plan; `usual`: tile blocks of a multiprocessor that the usual one lets in.
fn outcome(
    module: &Module,
    entry: &Entry,
    (target, options): (Target, &CompileOptions),
    usual: Option<u32>,
) -> Outcome {
    build_with(module, entry, target, options, &mut |module, entry, inference| {
        let lowering = lower::planned(module, entry, inference, options);
        if let Some(problem) = lowering.problems().first() {
            return Outcome::Fails(problem.message.clone());
        }
        let (context, schedule) = (lowering.context(), lowering.schedule());
        let blocks = lowering.blocks(entry.body);
        let mut efforts =
            context.inference.products.values().flatten().map(|plan| (plan.is_asynchronous(), plan.effort()));
        let apart = efforts.clone().any(|(_, effort)| effort.additions > 0);
        // Where threads fetch operands or add sums themselves, records and model differ by more; of 8-bit products that leave
        // their sums to others there are none.
        let left = |id: &OpId| module.dtype(module.op(*id).operands[0]).storage_bits();
        let narrow = context.inference.products.keys().any(|id| left(id) == 8);
        let sure = !narrow && efforts.all(|(alone, effort)| alone && effort.additions == 0 && effort.words == 0);
        let needed = context.mma_registers() + if apart { APART_REGISTERS } else { 0 };
        let there = context.consumer_registers(schedule.warp_spec.is_some(), blocks);
        if needed > there {
            return Outcome::Fails(format!(
                "matrix products need {needed} registers per thread, and {there} are available"
            ));
        }
        if options.occupancy.is_some_and(|wished| wished > blocks) {
            return Outcome::Fails("registers or shared memory do not allow it".to_owned());
        }
        let cost_of = |blocks| {
            let launched = LaunchInfo::default();
            CostInput { context, body: entry.body, schedule, blocks, launched }.cost(weights(target))
        };
        let fewer = usual.filter(|&usual| usual < blocks);
        let teams = schedule.warp_spec.as_ref().map_or(1, |roles| roles.pingpong_groups());
        let form = (context.inference.num_warps as u32, teams);
        let costs = cost_of(blocks).and_then(|cost| {
            let alike = fewer.map_or(Some(cost.each()), |fewer| Some(cost_of(fewer)?.each()))?;
            Some(Box::new(Costed { cost, alike, form, sure }))
        });
        costs.map_or_else(|| Outcome::Fails("deadlock: the partitions wait for each other".to_owned()), Outcome::Costs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::tests::matmul;
    use crate::dtype::DType;

    fn chosen(module: &Module, target: Target, options: CompileOptions) -> Chosen {
        choose(module, &module.entries[0], target, &options)
    }

    #[test]
    fn only_what_is_cheaper_by_the_margin_is_taken() {
        let of = |costs: &[Option<f64>]| cheapest(100.0, costs.iter().copied()).map(|(index, _)| index);
        assert_eq!(of(&[Some(101.0), None, Some(100.0 - 99.0 * MARGIN)]), None);
        assert_eq!(of(&[None, Some(100.0 - 101.0 * MARGIN)]), Some(1));
        assert_eq!(of(&[Some(70.0), Some(60.0), None, Some(65.0)]), Some(1));
    }

    #[test]
    fn more_blocks_of_a_multiprocessor_count_only_where_a_plan_is_as_good_without() {
        let plan = |each: f64, alike| {
            let (rounds, busy, blocks) = (Vec::new(), Vec::new(), 4);
            let cost = Cost { block: 4.0 * each, blocks, rounds, busy, bound: 0.0, waves: None, launch: None };
            Costed { cost, alike, form: (4, 1), sure: true }
        };
        assert_eq!(plan(60.0, 110.0).instead_of(100.0, false), Some(60.0));
        assert_eq!(plan(60.0, 130.0).instead_of(100.0, false), None);
        // Persistent blocks are as many as the grid says.
        assert_eq!(plan(60.0, 130.0).instead_of(100.0, true), Some(130.0));
    }

    #[test]
    fn plans_are_said_with_what_they_lost_by() {
        let said = CompileOptions { choice: Choice::Said, ..CompileOptions::default() };
        let module = matmul(DType::F16, DType::F32, [128, 128, 64]);
        let Chosen { options, considered } = chosen(&module, Target::SM_90A, said);
        assert_eq!(options, CompileOptions { choice: Choice::Nothing, ..said });
        let line =
            |part: &str| considered.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{considered:?}"));
        assert!(line("default (8 warps)").ends_with("; selected"), "{considered:?}");
        assert!(line("2 stages").ends_with(" % more"), "{considered:?}");
        assert!(line("4 warps").contains(" cycles per block"), "{considered:?}");
        // Each schedule once: there is no loop over tiles, so that there is no ping-pong to leave out.
        assert!(considered.iter().all(|line| !line.contains("no ping-pong")), "{considered:?}");
    }

    #[test]
    fn what_hints_say_and_what_does_not_multiply_is_left_as_it_is() {
        let module = matmul(DType::F16, DType::F32, [128, 128, 64]);
        let hints = CompileOptions { num_warps: Some(16), choice: Choice::Said, ..CompileOptions::default() };
        let Chosen { options, considered } = chosen(&module, Target::SM_90A, hints);
        assert_eq!(options.num_warps, Some(16));
        assert!(
            considered.iter().all(|line| line.contains("16 warps") || line.starts_with("occupancy 2")),
            "{considered:?}"
        );
        let mut plain = crate::backend::ptx::tests::Kernel::new("plain");
        let x = plain.array(DType::F32, 1, true);
        let view = plain.partition(&x, &[1024], &[0]);
        let place = plain.bids()[0];
        let tile = plain.load(view, &[place]);
        plain.store(tile, view, &[place]);
        let said = CompileOptions { choice: Choice::Said, ..CompileOptions::default() };
        assert!(chosen(&plain.finish(), Target::SM_90A, said).considered.is_empty());
    }
}
