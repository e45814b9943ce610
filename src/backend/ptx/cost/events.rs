//! Events of a schedule: steps of each partition with their resource use, for the simulation.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::machine_model::MachineModel;
use super::op_cost::{OpCost, OpCosts};
use super::register_demand::spilled_registers;
use super::resource_use::{Resource, ResourceUse};
use crate::backend::ptx::hardware::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::{
    For, HoistedOperand, KernelInfo, MmaGroup, OrderBarrierKind, OrderPoint, Schedule, SeqId, StagesPerIteration, Step,
    StripMine, StripRole, SubStep, WarpRole,
};
use crate::ir::{BlockId, Module, OpId, Opcode, Value};

/// Assumed trip counts of innermost loops and of outer loops, if nothing determines them.
pub const DEFAULT_TRIP_COUNTS: [f64; 2] = [32.0, 8.0];
/// Maximum numbers of simulated iterations: of innermost loops and of outer loops; and of a
/// ping-pong loop, whose groups wait for each other in the first iterations.
const SIMULATED_ITERATIONS: [u32; 2] = [64, 4];
const SIMULATED_PINGPONG_ITERATIONS: u32 = 6;

/// One event of the warps of a group.
pub struct Event {
    pub what: EventKind,
    /// Label in the timeline.
    pub label: String,
    /// Values that the event waits for.
    pub reads: Vec<Value>,
    /// The next event waits for all of its results: a reduction or scan.
    pub folds: bool,
    /// Number of steps that are merged into the event.
    pub count: u32,
    /// The steps of the event.
    pub parts: Vec<EventPart>,
}

/// A step of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventPart {
    /// Sequence of the step, and its position there.
    pub position: (SeqId, usize),
    /// Op of the step: of a step of a pipeline the first load of the channel.
    pub op: Option<OpId>,
    /// Cycles without contention.
    pub cycles: f64,
}

/// Instructions, their background transfers, then barriers.
#[derive(Default)]
pub struct Work {
    pub usage: ResourceUse,
    pub background: ResourceUse,
    /// The background transfers are stores.
    pub stores: bool,
    pub barriers: u32,
    /// Values that are available later.
    pub arrives: Vec<Value>,
    /// The event itself waits for the values in `arrives`.
    pub waits: bool,
}

/// Kind of an event.
pub enum EventKind {
    Work(Work),
    /// An asynchronous MMA group; with `waits` it is waited for at once.
    Mma {
        mma_usage: ResourceUse,
        min_cycles: f64,
        waits: bool,
        releases: Vec<u32>,
    },
    Produce(u32),
    Advance(u32),
    ConsumerWait(u32),
    /// Waits until at most `pending` MMA groups are in flight.
    MmaWait {
        pending: usize,
    },
    ConsumerRelease(Vec<u32>),
    /// Waits until the group before has left the ordered section.
    OrderWait(OrderPoint),
    /// Leaves the ordered section. That of MMAs ends when the MMAs issued last leave the tensor
    /// cores.
    OrderArrive(OrderPoint),
    /// A TMA store: transfers to the L2 cache and to memory.
    TmaStore {
        near: ResourceUse,
        far: ResourceUse,
    },
    Loop(usize),
}

/// A loop of an event program.
pub struct LoopTiming {
    pub op: OpId,
    /// Location in the source.
    pub source: String,
    pub body: usize,
    /// List of the epilogue.
    pub epilogue: Option<usize>,
    /// Trip count; `known`: it is not assumed.
    pub trip_count: f64,
    pub known: bool,
    /// Number of simulated iterations.
    pub simulated: u32,
    /// The loop contains loops.
    pub outer: bool,
    /// Stages of each pipeline that an iteration consumes, of a ping-pong loop.
    pub pingpong: Option<Vec<StagesPerIteration>>,
    pub cp_async: Option<CpAsyncTiming>,
    /// The loop contains MMAs.
    pub has_mma: bool,
}

/// Multistage copies of a loop.
#[derive(Clone, Copy)]
pub struct CpAsyncTiming {
    pub stages: usize,
    /// Resource use of the threads that issue the copies of an iteration, and their bytes.
    pub issue: ResourceUse,
    pub bytes: f64,
    /// Threads read elements that other threads copied: operands of MMAs.
    pub barrier_at_head: bool,
}

/// Event programs of all partitions.
pub struct EventPrograms {
    pub machine: &'static MachineModel,
    /// Lists of events, including the bodies of loops.
    pub lists: Vec<Vec<Event>>,
    pub loops: Vec<LoopTiming>,
    pub partitions: Vec<PartitionEvents>,
    pub pipelines: Vec<PipelineCost>,
    pub channels: Vec<ChannelCost>,
}

/// A partition: `pingpong_groups` groups, each with `groups` warp groups that execute the program
/// independently.
pub struct PartitionEvents {
    pub role: WarpRole,
    pub list: usize,
    pub pingpong_groups: u32,
    pub groups: u32,
    pub warps: u32,
    /// First warp of the partition.
    pub first_warp: u32,
    /// Number of groups at an order barrier.
    pub ordered_groups: u32,
}

/// A pipeline.
#[derive(Clone, Copy)]
pub struct PipelineCost {
    pub stages: usize,
    pub clustered: bool,
}

/// A channel.
#[derive(Clone, Copy)]
pub struct ChannelCost {
    pub pipeline: usize,
    /// Bytes that this CTA fetches, and its boxes: half of a multicast load.
    pub fetched: f64,
    pub boxes: f64,
}

impl EventPrograms {
    /// Returns the event programs of a schedule, with these trip counts.
    pub fn new(
        context: &KernelInfo<'_>,
        machine: &'static MachineModel,
        (schedule, ctas_per_sm): (&Schedule, u32),
        known: &FxHashMap<OpId, f64>,
    ) -> EventPrograms {
        let mut programs = EventPrograms {
            machine,
            lists: Vec::new(),
            loops: Vec::new(),
            partitions: Vec::new(),
            pipelines: Vec::new(),
            channels: Vec::new(),
        };
        if let Some(roles) = schedule.warp_spec.as_deref() {
            programs.pipelines = roles
                .pipelines
                .iter()
                .map(|pipeline| PipelineCost { stages: pipeline.num_stages as usize, clustered: pipeline.clustered })
                .collect_vec();
            for channel in &roles.channels {
                let share = |load: OpId| {
                    if roles.multicast.as_ref().is_some_and(|p| p.can_multicast(load)) { 0.5 } else { 1.0 }
                };
                programs.channels.push(ChannelCost {
                    pipeline: channel.pipeline,
                    fetched: channel.loads.iter().map(|load| f64::from(load.bytes) * share(load.load)).sum(),
                    boxes: channel.loads.iter().map(|load| load.boxes.len() as f64 * share(load.load)).sum(),
                });
            }
        }
        let has_mma = !context.inference.mma_plans.is_empty();
        let spilled_registers = spilled_registers(context, schedule, ctas_per_sm);
        for partition in &schedule.partitions {
            let warps = partition.warps.end - partition.warps.start;
            let pingpong_groups = if partition.role == WarpRole::Consumer {
                schedule.warp_spec.as_ref().map_or(1, |roles| roles.pingpong_groups())
            } else {
                1
            };
            // A warp group issues one `wgmma`; its four warps use one scheduler each.
            let groups = match partition.role {
                WarpRole::Producer => 1,
                _ if has_mma => (warps / pingpong_groups / WARP_GROUP_WARPS).max(1),
                _ => 1,
            };
            let each = if partition.role == WarpRole::Producer { 1 } else { warps / pingpong_groups / groups };
            // Each data partition has separate tiles.
            let data_partitions = if partition.role == WarpRole::Consumer { context.data_partitions } else { 1 };
            let op_costs =
                OpCosts { context, machine, warps: f64::from(each), groups: f64::from(groups / data_partitions) };
            let mut writer = EventBuilder {
                op_costs,
                schedule,
                known,
                loads: partition.role == WarpRole::Producer,
                exponentials: None,
                hoisted_operands: Vec::new(),
                spilled_registers: &spilled_registers,
                programs: &mut programs,
            };
            let list = writer.body(partition.body);
            let ordered_groups = if data_partitions > 1 { data_partitions } else { groups };
            programs.partitions.push(PartitionEvents {
                role: partition.role,
                list,
                pingpong_groups,
                groups,
                warps: each,
                first_warp: partition.warps.start,
                ordered_groups,
            });
        }
        programs
    }
}

struct EventBuilder<'a, 'm> {
    op_costs: OpCosts<'a, 'm>,
    schedule: &'a Schedule,
    known: &'a FxHashMap<OpId, f64>,
    /// The partition is a producer: one lane, whose events are not merged.
    loads: bool,
    /// Exponentials inside of an exponential order. The order arrive follows their computation.
    exponentials: Option<Value>,
    /// Operands of MMAs that the enclosing loops have hoisted.
    hoisted_operands: Vec<HoistedOperand>,
    /// Registers of a thread that the MMAs of a loop need beyond the available ones.
    spilled_registers: &'a FxHashMap<OpId, u32>,
    programs: &'a mut EventPrograms,
}

/// Returns an event of instructions only.
fn work(usage: ResourceUse) -> EventKind {
    EventKind::Work(Work { usage, ..Work::default() })
}

/// Merges adjacent instruction events: ptxas interleaves them, so that their resources are busy at
/// the same time. A reduction ends such a group, because its result needs the whole tile.
fn mixed(events: Vec<Event>) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::with_capacity(events.len());
    let mut max_cycles = 0.0;
    let mut open = false;
    for mut event in events {
        let mixes = event.mixes();
        if let (true, Some(last), EventKind::Work(Work { usage, .. })) = (open && mixes, out.last_mut(), &event.what)
            && let EventKind::Work(Work { usage: all, .. }) = &mut last.what
        {
            let cycles = usage.isolated_cycles();
            *all += *usage;
            last.reads.append(&mut event.reads);
            last.parts.append(&mut event.parts);
            if cycles > max_cycles {
                max_cycles = cycles;
                last.label = event.label;
            }
            last.count += 1;
            open = !event.folds;
            continue;
        }
        open = mixes && !event.folds;
        max_cycles = match &event.what {
            EventKind::Work(work) => work.usage.isolated_cycles(),
            _ => 0.0,
        };
        out.push(event);
    }
    out
}

impl Event {
    pub fn new(what: EventKind, label: String) -> Event {
        Event { what, label, reads: Vec::new(), folds: false, count: 1, parts: Vec::new() }
    }

    /// Returns the cycles of instructions without contention.
    fn cycles(&self) -> f64 {
        if let EventKind::Work(work) = &self.what { work.usage.isolated_cycles() } else { 0.0 }
    }

    /// Returns true if the event has instructions only.
    fn mixes(&self) -> bool {
        matches!(&self.what, EventKind::Work(Work { barriers: 0, arrives, waits: false, background, .. })
            if arrives.is_empty() && background.isolated_cycles() == 0.0)
    }
}

impl EventBuilder<'_, '_> {
    fn body(&mut self, body: SeqId) -> usize {
        let mut events = Vec::new();
        self.steps(body, &mut events);
        if self.has_order_steps(body) {
            // The planner orders only bodies without barriers, but op costs assume barriers of
            // layout conversions.
            for event in &mut events {
                if let EventKind::Work(work) = &mut event.what {
                    work.barriers = 0;
                }
            }
        }
        let events = if self.loads { events } else { mixed(events) };
        self.programs.lists.push(events);
        self.programs.lists.len() - 1
    }

    fn steps(&mut self, body: SeqId, events: &mut Vec<Event>) {
        let schedule = self.schedule;
        for (index, step) in schedule.steps(body).iter().enumerate() {
            // A step may move the preceding event after its own events.
            let first = events.len().saturating_sub(1);
            self.step(step, events);
            let op = self.op_of(step);
            for event in events.iter_mut().skip(first).filter(|event| event.parts.is_empty()) {
                event.parts.push(EventPart { position: (body, index), op, cycles: event.cycles() });
            }
            let makes =
                |value| step.ops().iter().any(|&id| self.op_costs.context.module.op(id).results.contains(&value));
            if self.exponentials.is_some_and(makes) {
                self.arrive_after_exponentials(events);
            }
        }
    }

    /// Returns true if a body has an exclusive order of its groups, and no barriers of threads.
    fn has_order_steps(&self, body: SeqId) -> bool {
        let steps = self.schedule.steps(body);
        let mut points = steps.iter().filter_map(Step::order_point);
        points.any(|point| point.barrier() == OrderBarrierKind::Named)
            && !steps.iter().any(|step| matches!(step, Step::Sub(SubStep::Barrier { .. })))
    }

    fn push(&self, events: &mut Vec<Event>, step: &Step, label: String, what: EventKind) {
        let reads = match step {
            Step::Exec(_)
            | Step::TmaStore(_)
            | Step::PrivatizedAtomic(_)
            | Step::StripMine(_)
            | Step::Mma(_)
            | Step::For(_) => self.op_costs.context.values_read_by(step),
            Step::Deferred(_)
            | Step::LocalLoad(_)
            | Step::Produce(_)
            | Step::Prefetch(_)
            | Step::Advance(_)
            | Step::ConsumerWait(_)
            | Step::MmaWait(_)
            | Step::ConsumerTryWait(_)
            | Step::ConsumerRelease(_)
            | Step::OrderWait { .. }
            | Step::OrderArrive(_)
            | Step::Loop(_)
            | Step::If { .. }
            | Step::Sub(_)
            | Step::End(_) => Vec::new(),
        };
        let folds = step.ops().iter().any(|&id| {
            let code = self.op_costs.context.module.op(id).code;
            matches!(code, Opcode::Reduce | Opcode::Scan)
        });
        events.push(Event { reads, folds, ..Event::new(what, label) });
    }

    /// Returns the op of a step, or the first load of its channel.
    fn op_of(&self, step: &Step) -> Option<OpId> {
        let load = |channel: u32| self.first_load(channel);
        match step {
            &Step::Produce(channel) | &Step::Advance(channel) | &Step::ConsumerTryWait(channel) => load(channel),
            Step::ConsumerWait(wait) => load(wait.channel),
            Step::ConsumerRelease(channels) => channels.first().and_then(|&first| load(first)),
            Step::MmaWait(wait) => Some(wait.mma),
            &Step::OrderWait { point: OrderPoint::Mma(op), .. } | &Step::OrderArrive(OrderPoint::Mma(op)) => Some(op),
            Step::Mma(plan) => plan.last(),
            _ => step.ops().first().copied(),
        }
    }

    fn step(&mut self, step: &Step, events: &mut Vec<Event>) {
        let context = self.op_costs.context;
        match step {
            &Step::Sub(SubStep::MmaReadWait { pending }) => {
                let what = EventKind::MmaWait { pending: pending as usize };
                self.push(events, step, "mma_wait".to_owned(), what);
            }
            // Other sub-steps are part of the cost of their op. Prefetches cost consumers nothing.
            Step::Deferred(_) | Step::Prefetch(_) | Step::End(_) | Step::Sub(_) => {}
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => self.exec(step, id, events),
            &Step::LocalLoad(id) => {
                let tile = context.module.op(id).results[0];
                let bytes =
                    crate::backend::ptx::plan::num_warps::extent(context.module, tile).1 as f64 / self.op_costs.groups;
                let usage = ResourceUse::new(Resource::Shared, bytes / self.op_costs.machine.shared);
                self.push(events, step, self.label(id), work(usage));
            }
            Step::StripMine(strip) => self.strip_mine(step, strip, events),
            Step::TmaStore(store) => self.tma_store(step, store.op, events),
            Step::Mma(plan) => self.multiply(step, plan, events),
            &Step::Produce(channel) => {
                self.push(events, step, self.channel_label("produce", channel), EventKind::Produce(channel))
            }
            &Step::Advance(channel) => {
                self.push(events, step, self.channel_label("advance", channel), EventKind::Advance(channel))
            }
            Step::ConsumerWait(wait) => {
                let label = self.channel_label("consumer_wait", wait.channel);
                self.push(events, step, label, EventKind::ConsumerWait(wait.channel));
            }
            Step::MmaWait(wait) => {
                let label = format!("mma_wait {}", self.source(wait.mma));
                self.push(events, step, label, EventKind::MmaWait { pending: wait.pending });
            }
            Step::ConsumerTryWait(_) => {}
            Step::ConsumerRelease(channels) => {
                let label =
                    channels.first().map_or_else(String::new, |&first| self.channel_label("consumer_release", first));
                self.push(events, step, label, EventKind::ConsumerRelease(channels.clone()));
            }
            &Step::OrderWait { point, .. } => {
                self.push(events, step, format!("order_wait {point}"), EventKind::OrderWait(point));
                self.exponentials = if let OrderPoint::Exp(value) = point { Some(value) } else { None };
            }
            Step::OrderArrive(OrderPoint::Exp(_)) => self.arrive_after_exponentials(events),
            &Step::OrderArrive(point) => {
                self.push(events, step, format!("order_arrive {point}"), EventKind::OrderArrive(point))
            }
            Step::For(plan) => self.for_loop(step, plan, events),
            Step::Loop(plan) => {
                let list = self.loop_body(step, plan.body, events);
                self.push_loop(plan.op, list, None, None, events);
            }
            &Step::If { op, ref arms, .. } => {
                // An arm with loops or MMAs determines the cost; otherwise the longer arm is
                // assumed to be rare.
                let regions = &context.module.op(op).regions;
                let weight = |&arm: &usize| regions.get(arm).map(|&region| self.weight(region));
                if let Some(&arm) = (0..arms.len()).min_by_key(weight).and_then(|arm| arms.get(arm)) {
                    self.steps(arm, events);
                }
            }
        }
    }

    /// Adds the event of an op that is a step by itself.
    fn exec(&mut self, step: &Step, id: OpId, events: &mut Vec<Event>) {
        let context = self.op_costs.context;
        let cost = self.op_costs.op(id);
        let arrives = if cost.arrives { context.module.op(id).results.clone() } else { Vec::new() };
        let OpCost { usage, background, barriers, .. } = cost;
        if usage.isolated_cycles() > 0.0 || barriers > 0 {
            let work = Work { usage, background, stores: !cost.arrives, barriers, arrives, waits: false };
            self.push(events, step, self.label(id), EventKind::Work(work));
        }
    }

    /// Adds a strip-mined sequence: the sum of its body, as one event.
    fn strip_mine(&mut self, step: &Step, strip: &StripMine, events: &mut Vec<Event>) {
        let (mut usage, mut background) = (ResourceUse::default(), ResourceUse::default());
        let mut barriers = 0;
        let mut arrives = false;
        for &(id, part) in &strip.ops {
            if part == StripRole::Body {
                let cost = self.op_costs.op(id);
                usage += cost.usage;
                background += cost.background;
                barriers = barriers.max(cost.barriers);
                arrives |= cost.arrives;
            }
        }
        let first = strip.ops().next().map_or_else(String::new, |id| self.label(id));
        let work = Work { usage, background, stores: !arrives, barriers, arrives: Vec::new(), waits: arrives };
        self.push(events, step, format!("strip_mine {first}"), EventKind::Work(work));
    }

    /// Adds a TMA store: the writes of the threads to shared memory, then the copy.
    fn tma_store(&mut self, step: &Step, id: OpId, events: &mut Vec<Event>) {
        let (cost, bytes) = self.op_costs.tma_store(id);
        let OpCost { usage, background, barriers, .. } = cost;
        let work = Work { usage, background, stores: true, barriers, ..Work::default() };
        self.push(events, step, self.label(id), EventKind::Work(work));
        let machine = self.op_costs.machine;
        let near = ResourceUse::new(Resource::L2, bytes / machine.l2);
        let far = ResourceUse::new(Resource::Memory, bytes / machine.memory);
        events.push(Event::new(EventKind::TmaStore { near, far }, self.label(id)));
    }

    /// Returns the label of an op: its name and its source location.
    fn label(&self, id: OpId) -> String {
        let name = self.op_costs.context.module.op(id).code.spec().name;
        format!("{} {}", name.trim_end_matches("_tko"), self.source(id))
    }

    /// Returns the label of a pipeline event: its name and the source location of the channel's
    /// first load.
    fn channel_label(&self, name: &str, channel: u32) -> String {
        let load = self.first_load(channel);
        load.map_or_else(|| format!("{name} {channel}"), |load| format!("{name} {}", self.source(load)))
    }

    /// Returns the first load of a channel.
    fn first_load(&self, channel: u32) -> Option<OpId> {
        let roles = self.schedule.warp_spec.as_ref()?;
        Some(roles.channels.get(channel as usize)?.loads.first()?.load)
    }

    fn source(&self, id: OpId) -> String {
        source(self.op_costs.context.module, id)
    }

    /// Arrives at the exponential order as soon as the exponentials are computed.
    fn arrive_after_exponentials(&mut self, events: &mut Vec<Event>) {
        if let Some(point) = self.exponentials.take().map(OrderPoint::Exp) {
            events.push(Event::new(EventKind::OrderArrive(point), format!("order_arrive {point}")));
        }
    }

    /// Returns whether an arm has no loops and MMAs, and its number of ops.
    fn weight(&self, region: BlockId) -> (bool, usize) {
        let module = self.op_costs.context.module;
        let (mut plain, mut count) = (true, 0);
        module.walk(region, &mut |id| {
            let code = module.op(id).code;
            plain &= !code.is_mma() && !code.is_loop();
            count += 1;
        });
        (plain, count)
    }

    fn multiply(&mut self, step: &Step, plan: &MmaGroup, events: &mut Vec<Event>) {
        let context = self.op_costs.context;
        let Some(last) = plan.last() else { return };
        let roles = self.schedule.warp_spec.as_deref();
        let fetched = |value: Value| {
            let load = context.source_load(value);
            self.hoisted_operands.iter().any(|operand| operand.value == value)
                || load.is_some_and(|load| roles.is_some_and(|roles| roles.operand_channel(load).is_some()))
        };
        let (mut before, mut mma_usage, mut after, mut barriers) =
            (ResourceUse::default(), ResourceUse::default(), ResourceUse::default(), 0);
        let (mut min_cycles, mut steps) = (0.0, 0.0);
        for &id in &plan.ops {
            let cost = self.op_costs.product(id, &fetched);
            before += cost.before.usage;
            barriers = barriers.max(cost.before.barriers);
            mma_usage += cost.mma_usage;
            min_cycles += cost.min_cycles;
            after += cost.after;
            steps += cost.steps;
        }
        let asynchronous = context.inference.is_async_mma(last);
        let enclosing = context.regions.enclosing_loop(last);
        let spilled = enclosing.and_then(|id| self.spilled_registers.get(&id)).map_or(0, |&registers| registers);
        if spilled > 0 {
            // Each step along k loads and stores the spilled accumulators.
            before += self.op_costs.spill(spilled, steps);
        }
        let name = format!("mma {}", self.source(last));
        // The order wait of MMAs is sunk to their issue.
        let order_wait = events.pop_if(|event| matches!(event.what, EventKind::OrderWait(OrderPoint::Mma(_))));
        if before.isolated_cycles() > 0.0 || barriers > 0 {
            let work = Work { usage: before, barriers, ..Work::default() };
            self.push(events, step, name.clone(), EventKind::Work(work));
        }
        if !asynchronous {
            self.push(events, step, name, work(mma_usage));
            if !plan.releases.is_empty() {
                events
                    .push(Event::new(EventKind::ConsumerRelease(plan.releases.clone()), "consumer_release".to_owned()));
            }
            return;
        }
        let waits = spilled > 0 || !context.is_async(&plan.ops);
        events.extend(order_wait);
        let what = EventKind::Mma { mma_usage, min_cycles, waits, releases: plan.releases.clone() };
        self.push(events, step, name, what);
        if after.isolated_cycles() > 0.0 {
            let what = work(after);
            events.push(Event::new(what, format!("accumulate {}", last.index())));
        }
    }

    fn for_loop(&mut self, step: &Step, plan: &For, events: &mut Vec<Event>) {
        if !plan.hoisted.is_empty() {
            // Bounds, and operands in another layout.
            let usage = ResourceUse::time(self.op_costs.machine.dependent_issue);
            self.push(events, step, "hoist".to_owned(), work(usage));
        } else {
            self.push(events, step, "for".to_owned(), work(ResourceUse::time(0.0)));
        }
        let list = self.loop_body(step, plan.body, events);
        if plan.cp_async.as_ref().is_some_and(|cp_async| cp_async.async_mma) {
            let what = EventKind::MmaWait { pending: 0 };
            self.programs.lists[list].insert(0, Event::new(what, "mma_wait all".to_owned()));
        }
        let epilogue = plan.epilogue.map(|epilogue| self.body(epilogue));
        let cp_async = plan.cp_async.as_ref().map(|cp_async| CpAsyncTiming {
            stages: cp_async.stages,
            issue: self.op_costs.copies(cp_async.stage_bytes as f64),
            bytes: cp_async.stage_bytes as f64 / self.op_costs.groups,
            barrier_at_head: cp_async.barrier_at_head,
        });
        let pingpong = plan.pingpong.as_ref().map(|pingpong| pingpong.stages_per_iteration.clone());
        self.push_loop(plan.op, list, epilogue, cp_async, events);
        if let Some(timing) = self.programs.loops.last_mut() {
            timing.pingpong = pingpong;
        }
    }

    /// Returns the list of events of a loop body, and adds those of the operands that are hoisted.
    fn loop_body(&mut self, step: &Step, body: SeqId, events: &mut Vec<Event>) -> usize {
        let hoisted = step.hoisted_operands();
        if !hoisted.is_empty() {
            let plans = hoisted.iter().filter_map(|operand| self.op_costs.context.hoisted_plan(operand));
            let OpCost { usage, barriers, .. } =
                self.op_costs.written_operands(plans.map(|plan| plan.shared.bytes()).sum());
            self.push(
                events,
                step,
                "hoist operands".to_owned(),
                EventKind::Work(Work { usage, barriers, ..Work::default() }),
            );
        }
        let outer = self.hoisted_operands.len();
        self.hoisted_operands.extend(hoisted);
        let list = self.body(body);
        self.hoisted_operands.truncate(outer);
        list
    }

    fn push_loop(
        &mut self,
        op: OpId,
        list: usize,
        epilogue: Option<usize>,
        cp_async: Option<CpAsyncTiming>,
        events: &mut Vec<Event>,
    ) {
        let (module, regions) = (self.op_costs.context.module, &self.op_costs.context.regions);
        let has_mma = regions.has_mma(op);
        let outer = regions.nested(op).iter().any(|&id| module.op(id).code.is_loop());
        let known = self.known.get(&op).copied();
        let trip_count = known.unwrap_or(DEFAULT_TRIP_COUNTS[usize::from(outer)]);
        let pingpong = self.schedule.warp_spec.as_ref().and_then(|roles| roles.pingpong.as_ref());
        let is_pingpong = pingpong.is_some_and(|pingpong| pingpong.loop_op == op);
        let limit = if is_pingpong { SIMULATED_PINGPONG_ITERATIONS } else { SIMULATED_ITERATIONS[usize::from(outer)] };
        let simulated = (trip_count.ceil() as u32).min(limit);
        let source = self.source(op);
        let label = format!("for {source}");
        self.programs.loops.push(LoopTiming {
            op,
            source,
            body: list,
            epilogue,
            trip_count,
            known: known.is_some(),
            simulated,
            outer,
            pingpong: None,
            cp_async,
            has_mma,
        });
        let index = self.programs.loops.len() - 1;
        events.push(Event::new(EventKind::Loop(index), label));
    }
}

/// Returns file name and line of an op, or its number if its location is unknown.
fn source(module: &Module, id: OpId) -> String {
    let Some(location) = module.location(module.op(id).loc) else { return format!("op {}", id.index()) };
    let file = location.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{file}:{}", location.line)
}
