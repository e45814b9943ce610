//! Prints a schedule as text.
//!
//! A step is a line: what is done, the number of its op in the module, and the op. Values are numbered as in the module. Loops
//! and branches have their bodies below them, further in.

use std::fmt::{self, Display, Formatter, Write as _};

use super::cp_async::{CpAsync, CpAsyncPlan};
use super::pipelines::{PINGPONG_GROUPS, PingPong, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::program::{
    ConsumerWait, LayoutId, MmaGroup, MmaIssue, MmaWait, OrderPoint, OrderSpan, Schedule, SeqId, StageSource, Step,
    StripRole, WarpRole,
};
use super::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::boxed::BoxedTile;
use crate::ir::{Module, OpId, Type, Value};

impl Display for WarpRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WarpRole::All => "all",
            WarpRole::Consumer => "math",
            WarpRole::Producer => "load",
        })
    }
}

impl Display for OrderPoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderPoint::Pipeline => "rings",
            OrderPoint::SideEffects => "memory",
        })
    }
}

impl Display for LayoutId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// Items with this between them.
pub fn join<T: Display>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    let mut text = String::new();
    for item in items {
        let _ = write!(text, "{}{item}", if text.is_empty() { "" } else { between });
    }
    text
}

impl Schedule {
    /// The whole schedule of a module's entry.
    pub fn to_text(&self, module: &Module) -> String {
        let mut printer = Printer { schedule: self, module, text: String::new(), depth: 0 };
        if let Some(warp_spec) = &self.warp_spec {
            printer.roles(warp_spec);
        }
        let each = match self.smem_bytes_per_group {
            0 => String::new(),
            bytes => format!(", {bytes} a team"),
        };
        printer.line(format_args!("shared {} bytes{each}", self.smem_bytes));
        if let Some(PrivatizedArray { first, array: root, mode, buffer, replicas }) = self.privatized {
            let (array, end) = (root.index(), buffer.offset + buffer.bytes);
            let mode = mode.name();
            printer.line(format_args!(
                "combined %{array} by {mode} from {}: {replicas} copies at {}..{end}",
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
                    format!(", in {data_partitions} bands of rows")
                }
                (WarpRole::Consumer, (pingpong_groups, _)) if pingpong_groups > 1 => {
                    format!(", in {pingpong_groups} teams")
                }
                _ => String::new(),
            };
            printer.line(format_args!(
                "agent {}: warps {}..{}{form}",
                partition.role, partition.warps.start, partition.warps.end
            ));
        }
        for partition in &self.partitions {
            printer.line(format_args!("program {}", partition.role));
            printer.body(partition.body);
        }
        for (id, form) in &self.mma_partitions {
            printer.line(format_args!("product {}: {form}", id.index()));
        }
        for (id, layout) in self.layouts.iter().enumerate() {
            let [register, lane, warp] = [layout.register_images(), layout.lane_images(), layout.warp_images()];
            let shape = layout.shape();
            printer.line(format_args!("layout L{id} {shape:?} register {register:?} lane {lane:?} warp {warp:?}"));
        }
        printer.text
    }
}

struct Printer<'a> {
    schedule: &'a Schedule,
    module: &'a Module,
    text: String,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{:depth$}{line}", "", depth = 2 * self.depth);
    }

    /// Rings and channels.
    fn roles(&mut self, warp_spec: &WarpSpecialization) {
        for (pipeline, plan) in warp_spec.pipelines.iter().enumerate() {
            let clustered = if plan.clustered { ", filled by pairs of blocks" } else { "" };
            self.line(format_args!(
                "ring {pipeline}: {} stages of {} bytes{clustered}",
                plan.num_stages, plan.stage_bytes
            ));
        }
        for (index, channel) in warp_spec.channels.iter().enumerate() {
            match channel.staging_for {
                Some(store) => {
                    self.line(format_args!("channel {index}: ring {}, lent to {}", channel.pipeline, store.index()))
                }
                None => {
                    self.line(format_args!("channel {index}: ring {}, {} bytes", channel.pipeline, channel.bytes()))
                }
            }
            self.depth += 1;
            for load in &channel.loads {
                let (tile, swizzle) = (tile_text(self.module, self.module.op(load.load).results[0]), load.map.swizzle);
                let boxes = load.boxes.len();
                let data_partitions =
                    if load.partitions > 1 { format!(", {} bands", load.partitions) } else { String::new() };
                self.line(format_args!(
                    "load {} +{}: {tile}, {boxes} boxes, {swizzle:?}{data_partitions}",
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
        schedule.steps(body).iter().for_each(|step| self.step(step));
        self.depth -= 1;
    }

    /// A line of a word and an op.
    fn op(&mut self, what: impl Display, id: OpId) {
        let op = self.op_text(id);
        self.line(format_args!("{what} {}: {op}", id.index()));
    }

    fn step(&mut self, step: &Step) {
        match step {
            &Step::Deferred(id) => self.op("let", id),
            &Step::Exec(id) => self.op("do", id),
            &Step::LocalLoad { op: id, from: StageSource::ThreadPrivate } => self.op("own", id),
            &Step::LocalLoad { op: id, from: StageSource::Channel } => self.op("get", id),
            Step::TmaStore(tma_store) => self.send(tma_store),
            &Step::PrivatizedAtomic(id) => self.op("combine", id),
            &Step::End(id) => self.op("end", id),
            Step::Mma(plan) => self.multiply(plan),
            Step::Produce(channel) => self.line(format_args!("fill {channel}")),
            Step::Advance(channel) => self.line(format_args!("take {channel}")),
            Step::ConsumerWait(ConsumerWait { channel, sunk }) => {
                self.line(format_args!("await {}{channel}", word("late ", *sunk)))
            }
            Step::MmaWait(MmaWait {
                mma,
                from_previous_iteration: carried,
                pending,
                sunk,
                defer_release,
                release_after,
            }) => {
                let (sunk, carried) = (word("late ", *sunk), word("carried ", *carried));
                let release_after = release_after.map_or(String::new(), |value| format!(" behind %{}", value.index()));
                let defer_release = word(" keeps", *defer_release);
                self.line(format_args!(
                    "land {sunk}{carried}{} younger {pending}{defer_release}{release_after}",
                    mma.index()
                ));
            }
            Step::ConsumerTryWait(channel) => self.line(format_args!("look {channel}")),
            Step::ConsumerRelease(channels) => self.line(format_args!("give {}", join(channels, ", "))),
            Step::Sub(sub_step) => self.line(format_args!("{sub_step}")),
            Step::OrderWait(point) => self.line(format_args!("turn {point}")),
            Step::OrderArrive(point) => self.line(format_args!("pass {point}")),
            Step::ExpOrderWait { exponentials, sunk } => {
                self.line(format_args!("turn {}work for %{}", word("late ", *sunk), exponentials.index()));
            }
            Step::ExpOrderArrive(value) => self.line(format_args!("pass work behind %{}", value.index())),
            Step::StripMine(strip_mine) => {
                let gives = join(strip_mine.live_out.iter().map(|value| format!("%{}", value.index())), ", ");
                let gives = if gives.is_empty() { gives } else { format!(" gives {gives}") };
                self.line(format_args!(
                    "strip as {}, {} slots a piece{gives}",
                    strip_mine.layout, strip_mine.registers_per_iteration
                ));
                self.depth += 1;
                for &(id, part) in &strip_mine.ops {
                    let word = match part {
                        StripRole::Body => "piece",
                        StripRole::View => "name",
                        StripRole::Preheader => "before",
                    };
                    self.op(word, id);
                }
                self.depth -= 1;
            }
            Step::For(step) => {
                self.op("for", step.op);
                self.depth += 1;
                self.hoisted(&step.hoisted);
                step.cp_async.iter().for_each(|cp_async| self.ahead(cp_async));
                for carried_mma in &step.carried_mmas {
                    let gives = join(&carried_mma.releases, ", ");
                    let carried = join(&carried_mma.accumulators, ", ");
                    self.line(format_args!("orbit {}: carried {carried}; gives {gives}", carried_mma.mma.index()));
                }
                step.pingpong.iter().for_each(|pingpong| self.deal(pingpong));
                step.unroll.iter().for_each(|unroll| self.line(format_args!("rounds {unroll}")));
                self.depth -= 1;
                self.body(step.body);
                if let Some(epilogue) = step.epilogue {
                    self.line(format_args!("leave"));
                    self.body(epilogue);
                }
            }
            Step::Loop(step) => {
                self.op("loop", step.op);
                self.depth += 1;
                self.hoisted(&step.hoisted);
                self.depth -= 1;
                self.body(step.body);
            }
            Step::If { op, arms, pure } => {
                self.op(if *pure { "if quiet" } else { "if" }, *op);
                for (index, &arm) in arms.iter().enumerate() {
                    if index > 0 {
                        self.line(format_args!("else"));
                    }
                    self.body(arm);
                }
            }
        }
    }

    /// A store by the copy engine: its boxes, and the places of those of warps.
    fn send(&mut self, tma_store: &TmaStore) {
        let TmaStore { op, layout, tile, staging } = tma_store;
        self.op(if staging.is_some() { "send by warps" } else { "send" }, *op);
        self.depth += 1;
        let BoxedTile { shared, boxes, part_bits, order, .. } = tile;
        let (shape, bytes) = (&shared.shape, shared.element_bytes);
        self.line(format_args!(
            "boxes of {shape:?} by {boxes:?}, {bytes} bytes an element, as {layout}, bits {order:?}, {part_bits} to cut"
        ));
        if let Some(StagingBuffer { buffer, channel: stage, split: StoreSplit { count, bytes, in_flight } }) = staging {
            let (start, end) = (buffer.offset, buffer.offset + buffer.bytes);
            let stage = stage.map_or_else(String::new, |channel| format!(" of the stage of {channel}"));
            self.line(format_args!("outbox {start}..{end}{stage}: {count} parts of {bytes} bytes, {in_flight} beside"));
        }
        self.depth -= 1;
    }

    /// A product, or several: each, and in which order they are issued.
    fn multiply(&mut self, plan: &MmaGroup) {
        let gives = join(&plan.releases, ", ");
        let gives = if gives.is_empty() { gives } else { format!(" gives {gives}") };
        let order = match plan.order {
            OrderSpan { acquire: true, release: true } => " in turn",
            OrderSpan { acquire: true, .. } => " where a turn begins",
            OrderSpan { release: true, .. } => " where a turn ends",
            _ => "",
        };
        if let [op] = plan.ops[..] {
            return self.op(format_args!("multiply{order}{gives}"), op);
        }
        self.line(format_args!("multiply{order} together{gives}"));
        self.depth += 1;
        plan.ops.iter().for_each(|&id| self.op("product", id));
        let part = |issue: &MmaIssue| {
            let op = plan.ops.get(issue.op).map_or(u32::MAX, |op| op.0);
            if issue.extends_n { format!("{op} wider") } else { op.to_string() }
        };
        self.line(format_args!("issue {}", join(plan.issue.iter().map(part), ", ")));
        self.depth -= 1;
    }

    fn hoisted(&mut self, hoisted: &[(Value, LayoutId)]) {
        for (value, layout) in hoisted {
            self.line(format_args!("hoist %{} as {layout}", value.index()));
        }
    }

    fn deal(&mut self, pingpong: &PingPong) {
        for (pipeline, stage_counts) in pingpong.stages_per_iteration.iter().enumerate() {
            let loops = join(stage_counts.per_iteration_of.iter().map(|id| id.index()), ", ");
            self.line(format_args!("dealt {PINGPONG_GROUPS}: ring {pipeline}: {} + {loops}", stage_counts.fixed));
        }
    }

    fn ahead(&mut self, cp_async: &CpAsyncPlan) {
        let all_thread_private = cp_async.is_thread_private();
        let kind = match (all_thread_private, cp_async.async_mma) {
            (true, _) => ", own elements",
            (false, true) => ", products land at the head",
            (false, false) => "",
        };
        let meets = word(", threads meet at the head", cp_async.barrier_at_head);
        self.line(format_args!("ahead {} stages of {} bytes{kind}{meets}", cp_async.stages, cp_async.stage_bytes));
        self.depth += 1;
        for &id in &cp_async.address_ops {
            self.op("scalar", id);
        }
        for CpAsync { load, thread_private: own, smem_offset: offset, vector, thread_offsets: thread, accesses } in
            &cp_async.copies
        {
            let accesses = join(
                accesses.iter().map(|access| format!("{}^{}+{}", access.register, access.xor, access.offset)),
                " ",
            );
            let own = word("own ", *own && !all_thread_private);
            let load = load.index();
            self.line(format_args!("copy {load} +{offset}: {vector} {own}elements, thread {thread:?}, at {accesses}"));
        }
        self.depth -= 1;
    }

    /// An op with its operands, and the type of what it gives.
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

/// This word, if it holds.
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
