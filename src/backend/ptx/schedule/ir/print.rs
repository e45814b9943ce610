//! Prints a schedule as text.
//!
//! A step is a line: what is done, the number of its op in the module, and the op. Values are numbered as in the module. Loops
//! and branches have their bodies below them, further in.

use std::fmt::{self, Display, Formatter, Write as _};

use super::cp_async::{CpAsync, CpAsyncPlan};
use super::pipelines::{PINGPONG_GROUPS, PingPong, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::program::{
    ConsumerWait, LayoutId, MmaGroup, MmaIssue, MmaWait, OrderPoint, OrderSpan, Schedule, SeqId, Step, StripRole,
    WarpRole,
};
use super::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
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
        if let Some(roles) = &self.warp_spec {
            printer.roles(roles);
        }
        let each = match self.smem_bytes_per_group {
            0 => String::new(),
            bytes => format!(", {bytes} a team"),
        };
        printer.line(format_args!("shared {} bytes{each}", self.shared_bytes));
        if let Some(PrivatizedArray { first, array: root, mode, buffer: place, replicas: copies }) = self.privatized {
            let (array, end) = (root.index(), place.offset + place.bytes);
            let mode = mode.name();
            printer.line(format_args!(
                "combined %{array} by {mode} from {}: {copies} copies at {}..{end}",
                first.index(),
                place.offset
            ));
        }
        for agent in &self.partitions {
            let groups =
                self.warp_spec.as_ref().map_or((1, 1), |roles| (roles.pingpong_groups(), roles.data_partitions));
            let form = match (agent.role, groups) {
                (WarpRole::Producer, _) => ", one lane".to_owned(),
                (WarpRole::Consumer, (_, bands)) if bands > 1 => format!(", in {bands} bands of rows"),
                (WarpRole::Consumer, (teams, _)) if teams > 1 => format!(", in {teams} teams"),
                _ => String::new(),
            };
            printer.line(format_args!("agent {}: warps {}..{}{form}", agent.role, agent.warps.start, agent.warps.end));
        }
        for agent in &self.partitions {
            printer.line(format_args!("program {}", agent.role));
            printer.body(agent.body);
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
    fn roles(&mut self, roles: &WarpSpecialization) {
        for (ring, plan) in roles.pipelines.iter().enumerate() {
            let paired = if plan.clustered { ", filled by pairs of blocks" } else { "" };
            self.line(format_args!("ring {ring}: {} stages of {} bytes{paired}", plan.num_stages, plan.stage_bytes));
        }
        for (index, channel) in roles.channels.iter().enumerate() {
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
                let bands = if load.partitions > 1 { format!(", {} bands", load.partitions) } else { String::new() };
                self.line(format_args!(
                    "load {} +{}: {tile}, {boxes} boxes, {swizzle:?}{bands}",
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
            &Step::LocalLoadThreadPrivate(id) => self.op("own", id),
            &Step::LocalLoad(id) => self.op("get", id),
            Step::TmaStore(send) => self.send(send),
            &Step::PrivatizedAtomic(id) => self.op("combine", id),
            &Step::End(id) => self.op("end", id),
            Step::Mma(plan) => self.multiply(plan),
            Step::Produce(channel) => self.line(format_args!("fill {channel}")),
            Step::Advance(channel) => self.line(format_args!("take {channel}")),
            Step::ConsumerWait(ConsumerWait { channel, sunk: late }) => {
                self.line(format_args!("await {}{channel}", word("late ", *late)))
            }
            Step::MmaWait(MmaWait {
                mma: product,
                from_previous_iteration: carried,
                pending: younger,
                sunk: late,
                defer_release: keeps,
                release_after: behind,
            }) => {
                let (late, carried) = (word("late ", *late), word("carried ", *carried));
                let behind = behind.map_or(String::new(), |value| format!(" behind %{}", value.index()));
                let keeps = word(" keeps", *keeps);
                self.line(format_args!("land {late}{carried}{} younger {younger}{keeps}{behind}", product.index()));
            }
            Step::ConsumerTryWait(channel) => self.line(format_args!("look {channel}")),
            Step::ConsumerRelease(channels) => self.line(format_args!("give {}", join(channels, ", "))),
            Step::Sub(within) => self.line(format_args!("{within}")),
            Step::OrderWait(turn) => self.line(format_args!("turn {turn}")),
            Step::OrderArrive(turn) => self.line(format_args!("pass {turn}")),
            Step::ExpOrderWait { exponentials, sunk: late } => {
                self.line(format_args!("turn {}work for %{}", word("late ", *late), exponentials.index()));
            }
            Step::ExpOrderArrive(value) => self.line(format_args!("pass work behind %{}", value.index())),
            Step::StripMine(strip) => {
                let gives = join(strip.live_out.iter().map(|value| format!("%{}", value.index())), ", ");
                let gives = if gives.is_empty() { gives } else { format!(" gives {gives}") };
                self.line(format_args!(
                    "strip as {}, {} slots a piece{gives}",
                    strip.layout, strip.registers_per_iteration
                ));
                self.depth += 1;
                for &(id, part) in &strip.ops {
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
                step.cp_async.iter().for_each(|ahead| self.ahead(ahead));
                for orbit in &step.carried_mmas {
                    let gives = join(&orbit.releases, ", ");
                    let carried = join(&orbit.accumulators, ", ");
                    self.line(format_args!("orbit {}: carried {carried}; gives {gives}", orbit.mma.index()));
                }
                step.pingpong.iter().for_each(|deal| self.deal(deal));
                step.unroll.iter().for_each(|rounds| self.line(format_args!("rounds {rounds}")));
                self.depth -= 1;
                self.body(step.body);
                if let Some(leave) = step.epilogue {
                    self.line(format_args!("leave"));
                    self.body(leave);
                }
            }
            Step::Loop(step) => {
                self.op("loop", step.op);
                self.depth += 1;
                self.hoisted(&step.hoisted);
                self.depth -= 1;
                self.body(step.body);
            }
            Step::If { op, arms, pure: quiet } => {
                self.op(if *quiet { "if quiet" } else { "if" }, *op);
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
    fn send(&mut self, send: &TmaStore) {
        let TmaStore { op, layout, tile, staging: outbox } = send;
        self.op(if outbox.is_some() { "send by warps" } else { "send" }, *op);
        self.depth += 1;
        let TmaBoxLayout { shared, boxes, split_bits, order, .. } = tile;
        let (shape, bytes) = (&shared.shape, shared.element_bytes);
        self.line(format_args!(
            "boxes of {shape:?} by {boxes:?}, {bytes} bytes an element, as {layout}, bits {order:?}, {split_bits} to cut"
        ));
        if let Some(StagingBuffer {
            buffer: place,
            channel: stage,
            split: StoreSplit { count, bytes, in_flight: slots },
        }) = outbox
        {
            let (start, end) = (place.offset, place.offset + place.bytes);
            let stage = stage.map_or_else(String::new, |channel| format!(" of the stage of {channel}"));
            self.line(format_args!("outbox {start}..{end}{stage}: {count} parts of {bytes} bytes, {slots} beside"));
        }
        self.depth -= 1;
    }

    /// A product, or several: each, and in which order they are issued.
    fn multiply(&mut self, plan: &MmaGroup) {
        let gives = join(&plan.releases, ", ");
        let gives = if gives.is_empty() { gives } else { format!(" gives {gives}") };
        let in_turn = match plan.order {
            OrderSpan { acquire: true, release: true } => " in turn",
            OrderSpan { acquire: true, .. } => " where a turn begins",
            OrderSpan { release: true, .. } => " where a turn ends",
            _ => "",
        };
        if let [op] = plan.ops[..] {
            return self.op(format_args!("multiply{in_turn}{gives}"), op);
        }
        self.line(format_args!("multiply{in_turn} together{gives}"));
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

    fn deal(&mut self, deal: &PingPong) {
        for (ring, takes) in deal.stages_per_iteration.iter().enumerate() {
            let loops = join(takes.per_iteration_of.iter().map(|id| id.index()), ", ");
            self.line(format_args!("dealt {PINGPONG_GROUPS}: ring {ring}: {} + {loops}", takes.fixed));
        }
    }

    fn ahead(&mut self, ahead: &CpAsyncPlan) {
        let all_own = ahead.is_thread_private();
        let how = match (all_own, ahead.async_mma) {
            (true, _) => ", own elements",
            (false, true) => ", products land at the head",
            (false, false) => "",
        };
        let meets = word(", threads meet at the head", ahead.barrier_at_head);
        self.line(format_args!("ahead {} stages of {} bytes{how}{meets}", ahead.stages, ahead.stage_bytes));
        self.depth += 1;
        for &id in &ahead.address_ops {
            self.op("scalar", id);
        }
        for CpAsync {
            load,
            thread_private: own,
            smem_offset: offset,
            vector: run,
            thread_offsets: thread,
            accesses: pieces,
        } in &ahead.copies
        {
            let pieces =
                join(pieces.iter().map(|piece| format!("{}^{}+{}", piece.register, piece.xor, piece.offset)), " ");
            let own = word("own ", *own && !all_own);
            let load = load.index();
            self.line(format_args!("copy {load} +{offset}: {run} {own}elements, thread {thread:?}, at {pieces}"));
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
