//! Costs of event programs and schedules with known answers, and their timelines.

use std::collections::BTreeSet;

use super::discrete_event::{EventReplay, extrapolated};
use super::events::{ChannelCost, Event, EventKind, EventPrograms, LoopTiming, PartitionEvents, PipelineCost, Work};
use super::resource_use::{Resource, ResourceUse};
use super::timeline_svg::BarKind;
use super::trip_count::trip_counts;
use super::{Cost, LaunchInfo, MachineModel, machine, registers_of_mma_loops};
use crate::backend::ptx::schedule::OrderPoint;
use crate::backend::ptx::tests::clusters::{PINGPONG_OPTIONS, persistent_tiles};
use crate::backend::ptx::tests::schedules::{each_schedule_of, kernels};
use crate::backend::ptx::tests::{Kernel, matmul, mma_overlap};
use crate::backend::ptx::{CompileOptions, PlanSearch, with_plan};
use crate::dtype::DType;
use crate::ir::{Module, OpId, Opcode, RegionTree, Value};
use crate::target::Target;

/// Returns a machine model in which nothing takes time.
fn free() -> MachineModel {
    MachineModel {
        clock: 1.0,
        num_sms: 132.0,
        tensor: 1e9,
        issue: 1e9,
        alu: 1e9,
        special: 1e9,
        shared: 1e9,
        l2: 1e9,
        memory: 1e9,
        misses: 0.0,
        load_latency: 0.0,
        copy_latency: 0.0,
        dependent_issue: 0.0,
        shuffle: 0.0,
        barrier: 0.0,
        cluster_barrier: 0.0,
        cluster_latency: 0.0,
        cluster: 1e9,
        wait_wakeup: 0.0,
        mma_latency: 0.0,
        mma_group_gap: 0.0,
        gather: 0.0,
        registers: 0.0,
        warpgroup_contention: 0.0,
        producer_stage: 0.0,
        producer_stage_cluster: 0.0,
        tma_box: 0.0,
        loop_overhead: 0.0,
        cta_launch: 0.0,
        launch: 0.0,
    }
}

fn table(machine: MachineModel) -> &'static MachineModel {
    Box::leak(Box::new(machine))
}

fn usual() -> CompileOptions {
    CompileOptions { plan_search: PlanSearch::Off, ..CompileOptions::default() }
}

fn cost(module: &Module, target: Target, options: &CompileOptions, machine: &'static MachineModel) -> Cost {
    let look = &mut |input: &super::CostInput<'_, '_>| input.cost(machine);
    with_plan(module, target, options, look).unwrap().expect("an end")
}

#[test]
fn exchanges_cost_barriers_of_the_cluster_and_loads_from_it() {
    let mut k = Kernel::new("exchange");
    let (x, i) = (k.array(DType::F32, 1, true), k.bids()[0]);
    let view = k.partition(&x, &[1024], &[0]);
    let tile = k.load(view, &[i]);
    let ty = k.tile(DType::F32, &[4, 1024]);
    let all = k.b.simple(Opcode::ClusterAllGather, &[tile], vec![], ty);
    let first = k.reduce(Opcode::AddF, all, 0, 0);
    k.store(first, view, &[i]);
    let module = k.finish();
    let of = |machine| cost(&module, Target::SM_90A, &usual(), table(machine)).cta_cycles;
    let more = |machine, cycles: f64| assert!((of(machine) - of(free()) - cycles).abs() < 1.0);
    more(MachineModel { cluster_barrier: 100.0, cluster_latency: 50.0, ..free() }, 250.0);
    // The tiles of four CTAs, 4 KiB each.
    more(MachineModel { cluster: 16.0, ..free() }, 1024.0);
}

fn product() -> Module {
    matmul(DType::F16, DType::F32, [128, 256, 64])
}

/// Returns the event programs of these partitions, without a kernel.
fn programs(
    machine: MachineModel,
    partitions: Vec<PartitionEvents>,
    lists: Vec<Vec<Event>>,
    loops: Vec<LoopTiming>,
) -> EventPrograms {
    EventPrograms { machine: table(machine), lists, loops, partitions, pipelines: Vec::new(), channels: Vec::new() }
}

fn work(usage: ResourceUse) -> Event {
    Event::new(EventKind::Work(Work { usage, ..Work::default() }), "work".to_owned())
}

fn partition(role: super::WarpRole, list: usize, groups: u32) -> PartitionEvents {
    PartitionEvents { role, list, pingpong_groups: 1, groups, warps: 4, first_warp: 0, ordered_groups: groups }
}

/// Returns a loop of `trip_count` iterations over a list.
fn timing(body: usize, trip_count: u32) -> LoopTiming {
    LoopTiming {
        op: OpId(0),
        source: "a.rs:1".to_owned(),
        body,
        epilogue: None,
        trip_count: trip_count.into(),
        known: true,
        simulated: trip_count,
        outer: false,
        pingpong: None,
        cp_async: None,
        has_mma: false,
    }
}

#[test]
fn requests_of_one_resource_share_it() {
    let both = vec![work(ResourceUse::new(Resource::Special, 640.0))];
    let all = programs(free(), vec![partition(super::WarpRole::All, 0, 2)], vec![both], Vec::new());
    let replay = EventReplay::run(&all, 1, true).unwrap();
    assert_eq!((replay.end, replay.busy[Resource::Special as usize]), (1280.0, 1280.0));
    // They proceed at the same time: neither ends long before the other one.
    assert!(replay.warp_groups.iter().all(|warp_group| warp_group.time >= 1280.0 - 64.0));
    // So do the CTAs of an SM; other resources have other queues.
    assert_eq!(EventReplay::run(&all, 2, false).unwrap().end, 2560.0);
    let apart = vec![work(ResourceUse::new(Resource::Special, 100.0).and(Resource::Alu, 100.0))];
    let apart = programs(free(), vec![partition(super::WarpRole::All, 0, 1)], vec![apart], Vec::new());
    assert_eq!(EventReplay::run(&apart, 1, false).unwrap().end, 100.0);
}

/// Returns the cycles of an iteration of a loop that consumes the stages of another partition, with
/// this number of stages.
fn pipeline(stages: usize) -> f64 {
    let event = |what| Event::new(what, String::new());
    let consumer = vec![event(EventKind::Loop(0))];
    let taken = vec![
        event(EventKind::Advance(0)),
        event(EventKind::ConsumerWait(0)),
        work(ResourceUse::time(10.0)),
        event(EventKind::ConsumerRelease(vec![0])),
    ];
    let producer = vec![event(EventKind::Loop(1))];
    let filled = vec![event(EventKind::Produce(0))];
    let machine = MachineModel { l2: 1.0, copy_latency: 700.0, ..free() };
    let partitions = vec![partition(super::WarpRole::Consumer, 0, 1), partition(super::WarpRole::Producer, 2, 1)];
    let lists = vec![consumer, taken, producer, filled];
    let mut all = programs(machine, partitions, lists, vec![timing(1, 64), timing(3, 64)]);
    all.pipelines = vec![PipelineCost { stages, clustered: false }];
    all.channels = vec![ChannelCost { pipeline: 0, fetched: 100.0, boxes: 1.0 }];
    let replay = EventReplay::run(&all, 1, false).unwrap();
    extrapolated(&all, &replay).0[0].cycles
}

#[test]
fn stages_hide_the_latency_of_copies() {
    // A copy needs 100 cycles of the cache, 700 cycles of latency, and 10 cycles of computation.
    for (stages, wanted) in [(1, 810.0), (2, 405.0), (4, 202.5), (8, 101.25), (9, 100.0), (16, 100.0)] {
        let got = pipeline(stages);
        assert!((got / wanted - 1.0).abs() < 0.03, "{stages} stages: {got} instead of {wanted}");
    }
}

#[test]
fn waiting_events_do_not_block_earlier_requests() {
    let value = crate::ir::Value(0);
    let load = EventKind::Work(Work { usage: ResourceUse::time(1.0), arrives: vec![value], ..Work::default() });
    let alu = ResourceUse::new(Resource::Alu, 64.0);
    let reads = Event { reads: vec![value], ..work(alu) };
    let lists = vec![vec![Event::new(load, String::new()), reads], vec![work(ResourceUse::time(500.0)), work(alu)]];
    let partitions = vec![partition(super::WarpRole::Consumer, 0, 1), partition(super::WarpRole::Producer, 1, 1)];
    let replay = EventReplay::run(
        &programs(MachineModel { load_latency: 1000.0, ..free() }, partitions, lists, Vec::new()),
        1,
        false,
    )
    .unwrap();
    assert_eq!(replay.warp_groups.iter().map(|warp_group| warp_group.time).collect::<Vec<_>>(), [1065.0, 564.0]);
}

/// Returns the cycles of an iteration of two groups: an MMA of 300 cycles, of which the tensor
/// cores need 100, and 50 cycles after it. `turns`: an order barrier separates the MMAs of the
/// groups.
fn multiplying(turns: bool) -> f64 {
    let event = |what| Event::new(what, String::new());
    let (mma_usage, releases) = (ResourceUse::new(Resource::Tensor, 100.0), Vec::new());
    let product = event(EventKind::Mma { mma_usage, min_cycles: 300.0, waits: false, releases });
    let all = [
        event(EventKind::OrderWait(OrderPoint::Mma(OpId(0)))),
        product,
        event(EventKind::OrderArrive(OrderPoint::Mma(OpId(0)))),
        event(EventKind::MmaWait { pending: 0 }),
        work(ResourceUse::time(50.0)),
    ];
    let body = all
        .into_iter()
        .filter(|event| turns || !matches!(event.what, EventKind::OrderWait(_) | EventKind::OrderArrive(_)));
    let lists = vec![vec![event(EventKind::Loop(0))], body.collect()];
    let all = programs(free(), vec![partition(super::WarpRole::Consumer, 0, 2)], lists, vec![timing(1, 64)]);
    extrapolated(&all, &EventReplay::run(&all, 1, false).unwrap()).0[0].cycles
}

#[test]
fn ordered_products_are_sequential() {
    let [free, ordered_groups] = [false, true].map(multiplying);
    // Without an order, both MMAs are executed at the same time. An ordered section ends with the
    // completion of the MMA, not with its issue.
    assert!((free - 350.0).abs() < 1.0 && (ordered_groups - 600.0).abs() < 1.0, "{free}, {ordered_groups} cycles");
}

#[test]
fn groups_wait_for_the_previous_section() {
    let event = |what| Event::new(what, String::new());
    let turn = |cycles| {
        vec![
            event(EventKind::OrderWait(OrderPoint::Exp(Value(0)))),
            work(ResourceUse::time(cycles)),
            event(EventKind::OrderArrive(OrderPoint::Exp(Value(0)))),
        ]
    };
    let of = |ordered_groups, groups, machine| {
        let partitions = vec![PartitionEvents { ordered_groups, ..partition(super::WarpRole::Consumer, 0, groups) }];
        let all = programs(machine, partitions, vec![turn(100.0)], Vec::new());
        EventReplay::run(&all, 1, false).unwrap().end
    };
    // Three groups, one after another; two data partitions of two groups each are executed at the
    // same time.
    assert_eq!((of(3, 3, free()), of(2, 4, free())), (300.0, 200.0));
    // Each waits at a barrier, and arrives on the next one.
    assert_eq!(of(3, 3, MachineModel { barrier: 30.0, dependent_issue: 4.0, ..free() }), 3.0 * 130.0 + 4.0);
    // A section without an end has no cost.
    let lists = vec![vec![event(EventKind::OrderWait(OrderPoint::Exp(Value(0))))]];
    assert!(
        EventReplay::run(
            &programs(free(), vec![partition(super::WarpRole::Consumer, 0, 2)], lists, Vec::new()),
            1,
            false
        )
        .is_none()
    );
}

#[test]
fn order_steps_of_a_schedule_are_events() {
    for (name, module, options) in crate::backend::ptx::tests::sync::mma_order::kernels() {
        let look = &mut |input: &super::CostInput<'_, '_>| {
            let programs = input.programs(machine(Target::SM_90A));
            let count =
                |is: fn(&EventKind) -> bool| programs.lists.iter().flatten().filter(|event| is(&event.what)).count();
            let begins = count(|what| matches!(what, EventKind::OrderWait(_)));
            (begins, count(|what| matches!(what, EventKind::OrderArrive(_))), input.schedule.has_named_order_barriers())
        };
        let options = CompileOptions { plan_search: PlanSearch::Off, ..options };
        let found = with_plan(&module, Target::SM_90A, &options, look).unwrap();
        assert_eq!(found, (1, 1, true), "{name}");
    }
}

#[test]
fn deadlocked_programs_have_no_cost() {
    let event = |what| Event::new(what, String::new());
    let mut all = programs(
        free(),
        vec![partition(super::WarpRole::Consumer, 0, 1)],
        vec![vec![event(EventKind::Advance(0)), event(EventKind::ConsumerWait(0))]],
        Vec::new(),
    );
    all.pipelines = vec![PipelineCost { stages: 2, clustered: false }];
    all.channels = vec![ChannelCost { pipeline: 0, fetched: 1.0, boxes: 1.0 }];
    assert!(EventReplay::run(&all, 1, false).is_none());
}

#[test]
fn tensor_cores_of_twice_the_rate_need_half_the_time() {
    let once = cost(&product(), Target::SM_90A, &usual(), table(MachineModel { tensor: 2048.0, ..free() }));
    let twice = cost(&product(), Target::SM_90A, &usual(), table(MachineModel { tensor: 4096.0, ..free() }));
    let [once, twice] = [&once, &twice].map(|cost| cost.loops[0].cycles);
    // 128 x 256 x 64 multiply-adds.
    assert!((once - 1024.0).abs() < 1.0 && (twice - 512.0).abs() < 1.0, "{once}, {twice}");
}

#[test]
fn more_stages_and_tma_are_faster() {
    for target in [Target::SM_80, Target::SM_90A] {
        let tile = if target == Target::SM_80 { [128, 128, 32] } else { [128, 256, 64] };
        let module = matmul(DType::F16, DType::F32, tile);
        let with =
            |stages| cost(&module, target, &CompileOptions { num_stages: Some(stages), ..usual() }, machine(target));
        let [one, two, four] = [1, 2, 4].map(|stages| with(stages).cta_cycles);
        assert!(one > two && two > four, "{target}: {one}, {two}, {four} cycles with 1, 2, 4 stages");
    }
}

#[test]
fn pingpong_hides_stores() {
    // Memory that is fast enough not to be the bottleneck.
    let machine = table(MachineModel { memory: 1e3, l2: 1e3, ..*machine(Target::SM_90A) });
    let with =
        |pingpong| cost(&persistent_tiles(), Target::SM_90A, &CompileOptions { pingpong, ..PINGPONG_OPTIONS }, machine);
    let (pingpong_groups, alone) = (with(true), with(false));
    let outer = |cost: &Cost| cost.loops.iter().find(|timing| timing.outer).map(|timing| timing.cycles).unwrap();
    let inner = |cost: &Cost| {
        cost.loops.iter().find(|timing| !timing.outer).map(|timing| timing.cycles * timing.trip_count).unwrap()
    };
    // Cycles of an iteration of the tiles in addition to its MMAs.
    let [hidden, seen] = [&pingpong_groups, &alone].map(|cost| outer(cost) - inner(cost));
    assert!(hidden < 0.5 * seen, "{hidden} of {seen} cycles during products");
}

#[test]
fn trip_counts_are_those_of_a_launch() {
    let module = persistent_tiles();
    let body = module.entries[0].body;
    let regions = RegionTree::new(&module, body);
    let mut loops = regions.ops().to_vec();
    loops.retain(|&id| module.op(id).code == Opcode::For);
    assert_eq!(loops.len(), 2);
    assert!(trip_counts(&module, (body, &regions), LaunchInfo::default()).is_empty());
    // Tiles from the CTA's number along x to 64, 8 apart, with as many steps as the CTA's
    // number along z: 0, 4 and 8 of a sample.
    let known = trip_counts(&module, (body, &regions), LaunchInfo { grid: Some([8, 1, 9]), params: &[] });
    let mut found: Vec<f64> = loops.iter().filter_map(|id| Some(known.get(id)?.mean)).collect();
    found.sort_by(f64::total_cmp);
    assert_eq!(found, [4.0, 8.0]);
}

/// Returns the names of elements and the texts of an SVG file, if it is well formed: elements are
/// closed in their order, attributes are quoted, and markup characters are escaped.
fn elements(text: &str) -> Option<(BTreeSet<String>, String)> {
    let (mut open, mut names, mut said): (Vec<&str>, BTreeSet<String>, String) =
        (Vec::new(), BTreeSet::new(), String::new());
    let mut rest = text.trim();
    while let Some(at) = rest.find('<') {
        let between = &rest[..at];
        if between.contains('>') || (open.is_empty() && !between.trim().is_empty()) {
            return None;
        }
        said += between;
        said.push('\n');
        let end = rest.find('>')?;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop()? != name {
                return None;
            }
            continue;
        }
        let whole = tag.strip_suffix('/');
        let name = whole.unwrap_or(tag).split(' ').next()?;
        names.insert(name.to_owned());
        let attributes: Vec<&str> = whole.unwrap_or(tag)[name.len()..].split('"').collect();
        let quoted = attributes.chunks(2).all(|pair| match pair {
            [before, value] => before.ends_with('=') && before.starts_with(' ') && !value.contains('<'),
            [last] => last.trim().is_empty(),
            _ => false,
        });
        if !quoted || attributes.len().is_multiple_of(2) {
            return None;
        }
        if whole.is_none() {
            open.push(name);
        }
    }
    let entities =
        said.split('&').skip(1).all(|part| ["amp;", "lt;", "gt;", "quot;"].iter().any(|e| part.starts_with(e)));
    (open.is_empty() && rest.trim().is_empty() && entities).then_some((names, said))
}

#[test]
fn elements_are_found_and_faults_in_them() {
    assert!(elements("<svg a=\"1\"><text>x &lt; y</text><rect/></svg>").is_some());
    for broken in ["<svg>", "<a><b></a></b>", "<svg a=1></svg>", "<svg>a > b</svg>", "<svg>a & b</svg>", "<svg/>x<"] {
        assert!(elements(broken).is_none(), "{broken}");
    }
}

#[test]
fn timelines_show_all_partitions_units_and_lines() {
    let mut partitions = BTreeSet::new();
    for (name, module, options) in kernels() {
        for target in [Target::SM_80, Target::SM_90A] {
            let look = &mut |input: &super::CostInput<'_, '_>| {
                let wanted: Vec<String> =
                    input.schedule.partitions.iter().map(|partition| partition.role.to_string()).collect();
                (input.picture(machine(target), "a < b & \"c\""), wanted)
            };
            let options = CompileOptions { plan_search: PlanSearch::Off, ..options };
            let Ok((picture, wanted)) = with_plan(&module, target, &options, look) else {
                continue;
            };
            let picture = picture.unwrap_or_else(|| panic!("{name}, {target}: no end"));
            let (names, said) = elements(&picture).unwrap_or_else(|| panic!("{name}, {target}: {picture}"));
            assert!(names.contains("rect") && names.contains("text"), "{name}");
            for partition in wanted {
                assert!(said.contains(&partition), "{name}, {target}: no lane of {partition}");
                partitions.insert(partition);
            }
            assert!(Resource::ALL.iter().all(|resource| said.contains(resource.name())), "{name}, {target}");
            assert!(BarKind::ALL.iter().all(|kind| said.contains(kind.legend().1)), "{name}, {target}: {said}");
        }
    }
    assert_eq!(partitions.into_iter().collect::<Vec<_>>(), ["all", "consumer", "producer"]);
}

#[test]
fn spilled_accumulators_cost_round_trips() {
    let module = matmul(DType::F16, DType::F32, [128, 256, 64]);
    let of = |warps| {
        let options = CompileOptions { num_warps: Some(warps), ..usual() };
        let look = &mut |input: &super::CostInput<'_, '_>| {
            let cost = input.cost(machine(Target::SM_90A)).expect("an end");
            (registers_of_mma_loops(input.context), cost.cycles_per_cta())
        };
        with_plan(&module, Target::SM_90A, &options, look).unwrap()
    };
    // Accumulators of 128 x 256 numbers in 128 and 256 threads.
    let [(four, spilled), (eight, cycles)] = [4, 8].map(of);
    assert!((256..290).contains(&four) && (128..162).contains(&eight), "{four} and {eight} registers");
    assert!(spilled > 2.0 * cycles, "{spilled} and {cycles} cycles");
}

#[test]
fn temporaries_of_a_group_need_no_registers() {
    // A thread has 64 registers of scores and 32 of the accumulator. The exponentials replace the
    // scores, and 32 registers of converted exponentials replace these, while the next scores are
    // computed.
    let (_, module, _) = mma_overlap::kernel();
    let options = CompileOptions { num_warps: Some(8), ..usual() };
    let look = &mut |input: &super::CostInput<'_, '_>| registers_of_mma_loops(input.context);
    let registers = with_plan(&module, Target::SM_90A, &options, look).unwrap();
    assert!((144..=160).contains(&registers), "{registers} registers");
}

#[test]
fn a_schedule_is_costed_in_milliseconds() {
    let mut worst = 0.0f64;
    each_schedule_of(kernels(), |name, context, body, schedule| {
        let launched = LaunchInfo::default();
        let input = super::CostInput { context, body, schedule, ctas_per_sm: 1, launched };
        let start = std::time::Instant::now();
        assert!(input.cost(machine(context.inference.target)).is_some(), "{name}");
        worst = worst.max(start.elapsed().as_secs_f64());
    });
    println!("{:.1} ms at most", 1e3 * worst);
    // Without optimization, on a busy machine.
    assert!(worst < 0.5, "{worst} s");
}
