//! Prints a schedule as text.
//!
//! A step is one line: the method, the number of the op in the module, and the op. Values have the
//! numbers of the module. The sequences of loops and branches are indented (`docs/schedule.md`).

use std::fmt::{self, Display, Formatter, Write as _};

use rustc_hash::FxHashMap;

use super::cp_async::{CpAsync, CpAsyncPlan};
use super::load_path::LoadPath;
use super::pipelines::{PINGPONG_GROUPS, PingPong, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::program::{
    CarriedMma, ConsumerWait, For, HoistedOperand, LayoutId, MmaGroup, MmaIssue, MmaWait, OrderPoint, Schedule, SeqId,
    Step, StripMine, StripRole, WarpRole,
};
use super::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::backend::ptx::tensor_map::Swizzle;
use crate::ir::{Module, OpId, Type, Value};

impl Display for WarpRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WarpRole::All => "all",
            WarpRole::Consumer => "consumer",
            WarpRole::Producer => "producer",
        })
    }
}

impl Display for OrderPoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OrderPoint::Pipeline => f.write_str("pipeline"),
            OrderPoint::SideEffects => f.write_str("side_effects"),
            OrderPoint::Mma(id) => write!(f, "mma {}", id.index()),
            OrderPoint::Exp(value) => write!(f, "exp %{}", value.index()),
        }
    }
}

impl Display for LayoutId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// Returns the items as text, separated by `between`.
pub fn join<T: Display>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    let mut text = String::new();
    for item in items {
        let _ = write!(text, "{}{item}", if text.is_empty() { "" } else { between });
    }
    text
}

impl Schedule {
    /// Returns the text of the whole schedule of a module's entry.
    pub fn to_text(&self, module: &Module) -> String {
        self.printed(module).text
    }

    /// Prints the schedule.
    pub(super) fn printed<'a>(&'a self, module: &'a Module) -> Printer<'a> {
        let mut printer = Printer {
            schedule: self,
            module,
            text: String::new(),
            depth: 0,
            num_lines: 0,
            step_lines: FxHashMap::default(),
        };
        if let Some(warp_spec) = &self.warp_spec {
            printer.warp_spec(warp_spec);
        }
        let each = match self.smem_bytes_per_group {
            0 => String::new(),
            bytes => format!(", {bytes} per group"),
        };
        printer.line(format_args!("smem {} bytes{each}", self.smem_bytes));
        if let Some(PrivatizedArray { first, array: root, mode, buffer, replicas }) = self.privatized {
            let (array, end) = (root.index(), buffer.offset + buffer.bytes);
            let mode = mode.name();
            printer.line(format_args!(
                "privatized %{array} by {mode}, first {}: {replicas} replicas at {}..{end}",
                first.index(),
                buffer.offset
            ));
        }
        for partition in &self.partitions {
            let groups = self
                .warp_spec
                .as_ref()
                .map_or((1, 1), |warp_spec| (warp_spec.pingpong_groups(), warp_spec.data_partitions));
            let form = match (partition.role, groups) {
                (WarpRole::Producer, _) => ", one lane".to_owned(),
                (WarpRole::Consumer, (_, data_partitions)) if data_partitions > 1 => {
                    format!(", {data_partitions} data partitions")
                }
                (WarpRole::Consumer, (pingpong_groups, _)) if pingpong_groups > 1 => {
                    format!(", ping-pong x{pingpong_groups}")
                }
                _ => String::new(),
            };
            printer.line(format_args!(
                "partition {}: warps {}..{}{form}",
                partition.role, partition.warps.start, partition.warps.end
            ));
        }
        for partition in &self.partitions {
            printer.line(format_args!("program {}", partition.role));
            printer.body(partition.body);
        }
        for (id, form) in &self.mma_partitions {
            printer.line(format_args!("mma {}: {form}", id.index()));
        }
        for (id, layout) in self.layouts.iter().enumerate() {
            let [register, lane, warp] = [layout.register_bases(), layout.lane_bases(), layout.warp_bases()];
            let shape = layout.shape();
            printer.line(format_args!("layout L{id} {shape:?} register {register:?} lane {lane:?} warp {warp:?}"));
        }
        printer
    }
}

/// A schedule in print.
pub(super) struct Printer<'a> {
    schedule: &'a Schedule,
    module: &'a Module,
    text: String,
    depth: usize,
    num_lines: u32,
    /// The line of each step, from 1.
    pub step_lines: FxHashMap<(SeqId, usize), u32>,
}

impl Printer<'_> {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{:depth$}{line}", "", depth = 2 * self.depth);
        self.num_lines += 1;
    }

    /// Prints the pipelines and channels.
    fn warp_spec(&mut self, warp_spec: &WarpSpecialization) {
        for (pipeline, plan) in warp_spec.pipelines.iter().enumerate() {
            let clustered = if plan.clustered { ", cluster of 2" } else { "" };
            self.line(format_args!(
                "pipeline {pipeline}: {} stages of {} bytes{clustered}",
                plan.num_stages, plan.stage_bytes
            ));
        }
        for (index, channel) in warp_spec.channels.iter().enumerate() {
            match channel.staging_for {
                Some(store) => self.line(format_args!(
                    "channel {index}: pipeline {}, staging for {}",
                    channel.pipeline,
                    store.index()
                )),
                None => {
                    self.line(format_args!("channel {index}: pipeline {}, {} bytes", channel.pipeline, channel.bytes()))
                }
            }
            self.depth += 1;
            for load in &channel.loads {
                let tile = tile_text(self.module, self.module.op(load.load).results[0]);
                let swizzle = swizzle_text(load.map.swizzle);
                let boxes = load.boxes.len();
                let data_partitions =
                    if load.partitions > 1 { format!(", {} partitions", load.partitions) } else { String::new() };
                self.line(format_args!(
                    "tma_load {} +{}: {tile}, {boxes} boxes, {swizzle}{data_partitions}",
                    load.load.index(),
                    load.smem_offset
                ));
            }
            self.depth -= 1;
        }
    }

    fn body(&mut self, body: SeqId) {
        self.depth += 1;
        let schedule = self.schedule;
        for (index, step) in schedule.steps(body).iter().enumerate() {
            self.step_lines.insert((body, index), self.num_lines + 1);
            self.step(step);
        }
        self.depth -= 1;
    }

    /// Prints a line of a word and an op.
    fn op(&mut self, what: impl Display, id: OpId) {
        let op = self.op_text(id);
        self.line(format_args!("{what} {}: {op}", id.index()));
    }

    fn step(&mut self, step: &Step) {
        match step {
            &Step::Deferred(id) => self.op("defer", id),
            &Step::Exec(id) => self.op("exec", id),
            &Step::LocalLoad(id) => match self.schedule.load_path(id) {
                LoadPath::CpAsync { .. } => self.op("local_load thread", id),
                _ => self.op("local_load stage", id),
            },
            Step::TmaStore(tma_store) => self.tma_store(tma_store),
            &Step::PrivatizedAtomic(id) => self.op("privatized_atomic", id),
            &Step::End(id) => self.op("end", id),
            Step::Mma(plan) => self.mma_group(plan),
            &Step::Prefetch(id) => self.op("prefetch", id),
            Step::Produce(channel) => self.line(format_args!("produce {channel}")),
            Step::Advance(channel) => self.line(format_args!("advance {channel}")),
            Step::ConsumerWait(ConsumerWait { channel, sunk }) => {
                self.line(format_args!("consumer_wait {channel}{}", word(" sunk", *sunk)))
            }
            Step::MmaWait(wait) => self.mma_wait(wait),
            Step::ConsumerTryWait(channel) => self.line(format_args!("consumer_try_wait {channel}")),
            Step::ConsumerRelease(channels) => self.line(format_args!("consumer_release {}", join(channels, ", "))),
            Step::Sub(sub_step) => self.line(format_args!("{sub_step}")),
            Step::OrderWait { point, sunk } => self.line(format_args!("order_wait {point}{}", word(" sunk", *sunk))),
            Step::OrderArrive(point) => self.line(format_args!("order_arrive {point}")),
            Step::StripMine(strip_mine) => self.strip_mine(strip_mine),
            Step::For(step) => self.for_loop(step),
            Step::Loop(step) => {
                self.op("loop", step.op);
                self.depth += 1;
                self.hoisted(&step.hoisted, &step.hoisted_operands);
                self.depth -= 1;
                self.body(step.body);
            }
            Step::If { op, arms, pure } => {
                self.op(if *pure { "if pure" } else { "if" }, *op);
                for (index, &arm) in arms.iter().enumerate() {
                    if index > 0 {
                        self.line(format_args!("else"));
                    }
                    self.body(arm);
                }
            }
        }
    }

    fn mma_wait(&mut self, wait: &MmaWait) {
        let MmaWait { mma, from_previous_iteration, pending, sunk, defer_release, release_after } = wait;
        let (sunk, carried) = (word(", sunk", *sunk), word(", from previous iteration", *from_previous_iteration));
        let defer_release = word(", defer release", *defer_release);
        let release_after = release_after.map_or(String::new(), |value| format!(", release after %{}", value.index()));
        self.line(format_args!(
            "mma_wait {} pending {pending}{sunk}{carried}{defer_release}{release_after}",
            mma.index()
        ));
    }

    fn strip_mine(&mut self, strip_mine: &StripMine) {
        let live_out = join(strip_mine.live_out.iter().map(|value| format!("%{}", value.index())), ", ");
        let live_out = if live_out.is_empty() { live_out } else { format!(", live-out {live_out}") };
        self.line(format_args!(
            "strip_mine {}, {} registers per iteration{live_out}",
            strip_mine.layout, strip_mine.registers_per_iteration
        ));
        self.depth += 1;
        for &(id, role) in &strip_mine.ops {
            let word = match role {
                StripRole::Body => "body",
                StripRole::View => "view",
                StripRole::Preheader => "preheader",
            };
            self.op(word, id);
        }
        self.depth -= 1;
    }

    fn for_loop(&mut self, step: &For) {
        self.op("for", step.op);
        self.depth += 1;
        self.hoisted(&step.hoisted, &step.hoisted_operands);
        step.cp_async.iter().for_each(|cp_async| self.cp_async(cp_async));
        for CarriedMma { mma, accumulators, releases } in &step.carried_mmas {
            let (accumulators, releases) = (join(accumulators, ", "), join(releases, ", "));
            self.line(format_args!("carried_mma {}: accumulators {accumulators}; releases {releases}", mma.index()));
        }
        step.pingpong.iter().for_each(|pingpong| self.pingpong(pingpong));
        step.unroll.iter().for_each(|unroll| self.line(format_args!("unroll {unroll}")));
        self.depth -= 1;
        self.body(step.body);
        if let Some(epilogue) = step.epilogue {
            self.line(format_args!("epilogue"));
            self.body(epilogue);
        }
    }

    /// Prints a TMA store with its boxes and its staging buffer.
    fn tma_store(&mut self, tma_store: &TmaStore) {
        let TmaStore { op, layout, tile, staging } = tma_store;
        self.op(if staging.is_some() { "tma_store per_warp" } else { "tma_store" }, *op);
        self.depth += 1;
        let TmaBoxLayout { shared, boxes, swizzle, split_bits, order } = tile;
        let (shape, bytes, swizzle) = (&shared.shape, shared.element_bytes, swizzle_text(*swizzle));
        self.line(format_args!(
            "boxes {shape:?} by {boxes:?}, {bytes} bytes per element, {swizzle}, layout {layout}, bases {order:?}, {split_bits} split bits"
        ));
        if let Some(StagingBuffer { buffer, channel, split: StoreSplit { count, bytes, in_flight } }) = staging {
            let (start, end) = (buffer.offset, buffer.offset + buffer.bytes);
            let channel = channel.map_or_else(String::new, |channel| format!(" in channel {channel}"));
            self.line(format_args!(
                "staging {start}..{end}{channel}: {count} parts of {bytes} bytes, {in_flight} in flight"
            ));
        }
        self.depth -= 1;
    }

    /// Prints an MMA group, with the order of issue if it has several MMAs.
    fn mma_group(&mut self, plan: &MmaGroup) {
        let releases = join(&plan.releases, ", ");
        let releases = if releases.is_empty() { releases } else { format!(" releases {releases}") };
        if let [op] = plan.ops[..]
            && plan.issue == MmaGroup::single(op).issue
        {
            return self.op(format_args!("mma{releases}"), op);
        }
        self.line(format_args!("mma group{releases}"));
        self.depth += 1;
        plan.ops.iter().for_each(|&id| self.op("mma", id));
        let part = |issue: &MmaIssue| {
            let op = plan.ops.get(issue.op).map_or(u32::MAX, |op| op.0);
            if issue.extends_n { format!("{op} extends_n") } else { op.to_string() }
        };
        self.line(format_args!("issue {}", join(plan.issue.iter().map(part), ", ")));
        self.depth -= 1;
    }

    fn hoisted(&mut self, hoisted: &[(Value, LayoutId)], operands: &[HoistedOperand]) {
        for (value, layout) in hoisted {
            self.line(format_args!("hoist %{} to {layout}", value.index()));
        }
        for HoistedOperand { value, mma, is_left } in operands {
            let side = if *is_left { "left" } else { "right" };
            self.line(format_args!("hoist %{} to smem, {side} operand of {}", value.index(), mma.index()));
        }
    }

    fn pingpong(&mut self, pingpong: &PingPong) {
        for (pipeline, stage_counts) in pingpong.stages_per_iteration.iter().enumerate() {
            let loops = stage_counts.per_trip_of.iter().map(|id| format!(" + loop {}", id.index()));
            let loops: String = loops.collect();
            self.line(format_args!("pingpong {PINGPONG_GROUPS}: pipeline {pipeline}: {}{loops}", stage_counts.direct));
        }
    }

    fn cp_async(&mut self, cp_async: &CpAsyncPlan) {
        let all_thread_private = cp_async.is_thread_private();
        let barrier = word(", barrier at head", cp_async.barrier_at_head);
        let private = word(", thread-private", all_thread_private);
        let wait = word(", mma_wait at head", cp_async.async_mma);
        self.line(format_args!(
            "cp_async {} stages of {} bytes{barrier}{private}{wait}",
            cp_async.stages, cp_async.stage_bytes
        ));
        self.depth += 1;
        for &id in &cp_async.address_ops {
            self.op("address", id);
        }
        for copy in &cp_async.copies {
            let CpAsync { load, thread_private, smem_offset: offset, vector, accesses, .. } = copy;
            let (thread, replicas) = (&copy.thread_offsets, copy.replicas);
            let accesses = join(
                accesses.iter().map(|access| format!("{}^{}+{}", access.register, access.xor, access.offset)),
                " ",
            );
            let private = word(", thread-private", *thread_private && !all_thread_private);
            let private =
                if replicas == 0 { private.to_string() } else { format!("{private}, replicas {replicas:#x}") };
            let load = load.index();
            self.line(format_args!(
                "copy {load} +{offset}: {vector} elements{private}, thread {thread:?}, at {accesses}"
            ));
        }
        self.depth -= 1;
    }

    /// Returns the text of an op with its operands, and the type of its result.
    fn op_text(&self, id: OpId) -> String {
        let op = self.module.op(id);
        let name = |value: &Value| format!("%{}", value.index());
        let mut text = String::new();
        if !op.results.is_empty() {
            text += &format!("{} = ", join(op.results.iter().map(name), ", "));
        }
        text += op.code.spec().name;
        if !op.operands.is_empty() {
            text += &format!(" {}", join(op.operands.iter().map(name), ", "));
        }
        let tiles = op.results.iter().filter(|&&value| matches!(self.module.ty(value), Type::Tile { .. }));
        let types = join(tiles.map(|&value| tile_text(self.module, value)), ", ");
        if types.is_empty() { text } else { format!("{text} : {types}") }
    }
}

fn swizzle_text(swizzle: Swizzle) -> &'static str {
    match swizzle {
        Swizzle::None => "no swizzle",
        Swizzle::B32 => "swizzle 32B",
        Swizzle::B64 => "swizzle 64B",
        Swizzle::B128 => "swizzle 128B",
    }
}

/// Returns the word if `holds` is true, and otherwise an empty text.
fn word(word: &'static str, holds: bool) -> &'static str {
    if holds { word } else { "" }
}

fn tile_text(module: &Module, value: Value) -> String {
    match module.ty(value) {
        Type::Tile { elem, shape } if shape.is_empty() => elem.to_string(),
        Type::Tile { elem, shape } => format!("{elem} {shape:?}"),
        _ => String::new(),
    }
}
