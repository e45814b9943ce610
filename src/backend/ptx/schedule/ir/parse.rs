//! Parses a schedule from text (tests only).
//!
//! Ops, pipelines and channels are taken from the module and the warp specialization. The parser
//! skips their text; a difference shows when the schedule is printed again.

use std::rc::Rc;

use super::cp_async::{CpAsync, CpAsyncAccess, CpAsyncPlan};
use super::pipelines::{PingPong, StageCount, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::program::{
    CarriedMma, ConsumerWait, For, LayoutId, Loop, MmaGroup, MmaIssue, MmaWait, OrderPoint, OrderSpan, Partition,
    SeqId, StageSource, StripRole, WarpRole,
};
use super::program::{Schedule, Step, StripMine};
use super::sub_step::{ConversionKind, ConvertLayout, SubStep};
use super::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::ir::{AtomicMode, OpId, Value};
use crate::layout::Layout;

type Parsed<T> = Result<T, String>;

/// The lines that are left, each with its indentation.
struct Lines<'t> {
    lines: std::iter::Peekable<std::vec::IntoIter<(usize, &'t str)>>,
    schedule: Schedule,
}

impl Schedule {
    /// The schedule that a full text describes, with these pipelines and channels.
    pub fn parse(text: &str, warp_spec: Option<Rc<WarpSpecialization>>) -> Parsed<Schedule> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<_> = lines.map(|line| (line.len() - line.trim_start().len(), line.trim())).collect();
        let schedule = Schedule { warp_spec, ..Schedule::default() };
        let mut parser = Lines { lines: lines.into_iter().peekable(), schedule };
        while let Some((_, line)) = parser.lines.next() {
            parser.top(line).map_err(|problem| format!("{problem}: {line}"))?;
        }
        Ok(parser.schedule)
    }
}

/// The number that a text begins with, and the rest.
fn number(text: &str) -> Parsed<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| format!("a number is expected at `{text}`"))?;
    Ok((number, &text[end..]))
}

/// All numbers of a text.
fn numbers(text: &str) -> Parsed<Vec<u32>> {
    let words = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| format!("{word}: too large"))).collect()
}

/// The numbers in the brackets after a word.
fn list(text: &str, word: &str) -> Parsed<Vec<u32>> {
    let (_, rest) = text.split_once(&format!("{word} [")).ok_or(format!("no {word}"))?;
    numbers(rest.split(']').next().unwrap_or_default())
}

fn after<'t>(text: &'t str, word: &str) -> Parsed<&'t str> {
    text.split_once(word).map(|(_, rest)| rest).ok_or_else(|| format!("`{word}` is expected"))
}

/// The layout after this word.
fn layout(text: &str, word: &str) -> Parsed<LayoutId> {
    Ok(LayoutId(number(after(text, &format!("{word}L"))?)?.0))
}

fn op(text: &str) -> Parsed<OpId> {
    Ok(OpId(number(text.trim_start())?.0))
}

fn warp_role(word: &str) -> Parsed<WarpRole> {
    let roles = [WarpRole::All, WarpRole::Consumer, WarpRole::Producer];
    roles.into_iter().find(|role| role.to_string() == word).ok_or("no warp role".to_owned())
}

fn order_point(word: &str) -> Parsed<OrderPoint> {
    OrderPoint::ALL.into_iter().find(|point| point.to_string() == word).ok_or("no order point".to_owned())
}

/// Words that begin a sub-step.
const SUB_STEPS: [&str; 9] = [
    "convert_layout",
    "smem_write",
    "smem_read",
    "global_access",
    "split",
    "smem",
    "mma_wait_all",
    "tma_store_wait",
    "barrier",
];

fn sub_step(word: &str, rest: &str) -> Parsed<SubStep> {
    let numbers = numbers(rest)?;
    let at = |index: usize| numbers.get(index).copied().ok_or("too few numbers");
    let buffer = || Ok::<_, &str>(Buffer { offset: at(0)?, bytes: at(1)?.saturating_sub(at(0)?) });
    Ok(match word {
        "convert_layout" => {
            let kind = match () {
                () if rest.contains("by registers") => ConversionKind::Registers,
                () if rest.contains("by shuffle") => ConversionKind::Shuffle,
                () if rest.contains("by affine smem") => ConversionKind::SmemAffine,
                () if rest.contains("unsupported") => ConversionKind::Unsupported,
                () => ConversionKind::Smem(at(2)?),
            };
            let plan = numbers[numbers.len() - 1];
            SubStep::ConvertLayout(ConvertLayout { value: Value(at(0)?), to: LayoutId(at(1)?), kind, plan })
        }
        "smem_write" => SubStep::SmemWrite(buffer()?),
        "smem_read" => SubStep::SmemRead(buffer()?),
        "global_access" => SubStep::GlobalAccess(OpId(at(0)?)),
        "split" => SubStep::Split { count: at(0)?, in_flight: at(1)? },
        "smem" => SubStep::SmemOverflow { bytes: at(0)?, of: at(1)? },
        "mma_wait_all" => SubStep::MmaWaitAll,
        "tma_store_wait" => SubStep::TmaStoreWait { complete: rest != "read" },
        _ => SubStep::Barrier { required: rest == "required" },
    })
}

fn privatized(text: &str) -> Parsed<PrivatizedArray> {
    let [array, first, replicas, start, end] = numbers(text)?[..] else { return Err("no replicas".to_owned()) };
    let word = after(text, "by ")?.split(',').next().unwrap_or_default();
    let mode = AtomicMode::ALL.iter().copied().find(|mode| mode.name() == word).ok_or("no mode")?;
    let buffer = Buffer { offset: start, bytes: end.saturating_sub(start) };
    Ok(PrivatizedArray { first: OpId(first), array: Value(array), mode, buffer, replicas })
}

fn mma_wait(rest: &str) -> Parsed<MmaWait> {
    let release_after = rest.split_once("release after %").map(|(_, value)| number(value)).transpose()?;
    Ok(MmaWait {
        mma: op(rest)?,
        from_previous_iteration: rest.contains(", from previous iteration"),
        pending: number(after(rest, " pending ")?)?.0 as usize,
        sunk: rest.contains(", sunk"),
        defer_release: rest.contains(", defer release"),
        release_after: release_after.map(|(value, _)| Value(value)),
    })
}

impl Lines<'_> {
    /// A line without indentation.
    fn top(&mut self, line: &str) -> Parsed<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "partition" => {
                let (name, rest) = rest.split_once(": warps ").ok_or("no warps")?;
                let (start, rest) = number(rest)?;
                let (end, _) = number(after(rest, "..")?)?;
                self.schedule.partitions.push(Partition { role: warp_role(name)?, warps: start..end, body: SeqId(0) });
            }
            "program" => {
                let body = self.body(0)?;
                let role = warp_role(rest)?;
                let partition = self.schedule.partitions.iter_mut().find(|partition| partition.role == role);
                partition.ok_or("a program without a partition")?.body = body;
            }
            "mma" => {
                let (id, form) = rest.split_once(": ").ok_or("no MMA")?;
                self.schedule.mma_partitions.push((op(id)?, form.to_owned()));
            }
            "layout" => {
                let shape: Vec<i64> = list(rest, "")?.into_iter().map(i64::from).collect();
                let [register, lane, warp] = [list(rest, "register")?, list(rest, "lane")?, list(rest, "warp")?];
                self.schedule.layouts.push(Layout::new(shape, register, lane, warp));
            }
            "smem" => {
                let numbers = numbers(rest)?;
                self.schedule.smem_bytes = numbers[0];
                self.schedule.smem_bytes_per_group = numbers.get(1).copied().unwrap_or(0);
            }
            "privatized" => self.schedule.privatized = Some(privatized(rest)?),
            "pipeline" | "channel" | "tma_load" | "#" => {}
            _ => return Err("an unknown line".to_owned()),
        }
        Ok(())
    }

    /// The next line, if its indentation is larger than `depth` and it begins with one of these
    /// words.
    fn inner(&mut self, depth: usize, words: &[&str]) -> Option<(usize, String, String)> {
        let &(at, line) = self.lines.peek()?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let found = at > depth && (words.is_empty() || words.contains(&word));
        found.then(|| {
            self.lines.next();
            (at, word.to_owned(), rest.to_owned())
        })
    }

    /// The steps with a larger indentation than `depth`.
    fn body(&mut self, depth: usize) -> Parsed<SeqId> {
        let id = SeqId(self.schedule.sequences.len() as u32);
        self.schedule.sequences.push(Vec::new());
        let (mut steps, mut acquires) = (Vec::new(), false);
        while let Some((depth, word, rest)) = self.inner(depth, &[]) {
            if (word.as_str(), rest.as_str()) == ("order_wait", "mma") {
                acquires = true;
                continue;
            }
            if (word.as_str(), rest.as_str()) == ("order_arrive", "mma") {
                let Some(Step::Mma(group)) = steps.last_mut() else { return Err("no MMA before its end".to_owned()) };
                group.order.release = true;
                continue;
            }
            let mut step = self.step(depth, &word, &rest).map_err(|problem| format!("{problem}: {word} {rest}"))?;
            if let Step::Mma(group) = &mut step {
                group.order.acquire |= std::mem::take(&mut acquires);
            }
            steps.push(step);
        }
        self.schedule.sequences[id.0 as usize] = steps;
        Ok(id)
    }

    fn step(&mut self, depth: usize, word: &str, rest: &str) -> Parsed<Step> {
        Ok(match word {
            "defer" => Step::Deferred(op(rest)?),
            "exec" => Step::Exec(op(rest)?),
            "local_load" => {
                let (source, id) = rest.split_once(' ').ok_or("no stage")?;
                let from = if source == "thread" { StageSource::ThreadPrivate } else { StageSource::Channel };
                Step::LocalLoad { op: op(id)?, from }
            }
            "privatized_atomic" => Step::PrivatizedAtomic(op(rest)?),
            "tma_store" => Step::TmaStore(Box::new(self.tma_store(depth, op(rest.trim_start_matches("per_warp "))?)?)),
            "end" => Step::End(op(rest)?),
            "produce" => Step::Produce(number(rest)?.0),
            "advance" => Step::Advance(number(rest)?.0),
            "consumer_wait" => {
                Step::ConsumerWait(ConsumerWait { channel: number(rest)?.0, sunk: rest.ends_with(" sunk") })
            }
            "mma_wait" => Step::MmaWait(mma_wait(rest)?),
            "consumer_release" => Step::ConsumerRelease(numbers(rest)?),
            "consumer_try_wait" => Step::ConsumerTryWait(number(rest)?.0),
            "order_wait" if rest.starts_with("exp ") => {
                let exponentials = Value(number(after(rest, "%")?)?.0);
                Step::ExpOrderWait { exponentials, sunk: rest.ends_with(" sunk") }
            }
            "order_arrive" if rest.starts_with("exp ") => Step::ExpOrderArrive(Value(number(after(rest, "%")?)?.0)),
            "order_wait" => Step::OrderWait(order_point(rest)?),
            "order_arrive" => Step::OrderArrive(order_point(rest)?),
            "mma" => Step::Mma(Box::new(self.mma_group(depth, rest)?)),
            "strip_mine" => self.strip_mine(depth, rest)?,
            "for" => self.for_loop(depth, op(rest)?)?,
            "loop" => {
                let hoisted = self.hoisted(depth)?;
                Step::Loop(Box::new(Loop { op: op(rest)?, hoisted, body: self.body(depth)? }))
            }
            "if" => {
                let pure = rest.starts_with("pure ");
                let mut arms = vec![self.body(depth)?];
                if self.lines.next_if_eq(&(depth, "else")).is_some() {
                    arms.push(self.body(depth)?);
                }
                Step::If { op: op(rest.trim_start_matches("pure "))?, arms, pure }
            }
            word if SUB_STEPS.contains(&word) => Step::Sub(sub_step(word, rest)?),
            _ => return Err("an unknown step".to_owned()),
        })
    }

    fn for_loop(&mut self, depth: usize, op_id: OpId) -> Parsed<Step> {
        let hoisted = self.hoisted(depth)?;
        let cp_async = self.cp_async(depth)?;
        let mut carried_mmas = Vec::new();
        while let Some((_, _, text)) = self.inner(depth, &["carried_mma"]) {
            let (accumulators, releases) = after(&text, "accumulators ")?.split_once(';').ok_or("no stages")?;
            let accumulators = numbers(accumulators)?.into_iter().map(|number| number as usize).collect();
            carried_mmas.push(CarriedMma { mma: op(&text)?, accumulators, releases: numbers(releases)? });
        }
        let mut stage_counts = Vec::new();
        while let Some((_, _, text)) = self.inner(depth, &["pingpong"]) {
            let [_, _, fixed, loops @ ..] = &numbers(&text)?[..] else { return Err("no stages".to_owned()) };
            let per_iteration_of = loops.iter().map(|&id| OpId(id)).collect();
            stage_counts.push(StageCount { fixed: *fixed, per_iteration_of });
        }
        let pingpong =
            (!stage_counts.is_empty()).then_some(PingPong { loop_op: op_id, stages_per_iteration: stage_counts });
        let unroll = self.inner(depth, &["unroll"]);
        let unroll = unroll.map(|(_, _, text)| Ok::<_, String>(number(&text)?.0)).transpose()?;
        let body = self.body(depth)?;
        let epilogue = self.lines.next_if_eq(&(depth, "epilogue")).map(|_| self.body(depth)).transpose()?;
        Ok(Step::For(Box::new(For { op: op_id, hoisted, cp_async, carried_mmas, pingpong, unroll, body, epilogue })))
    }

    fn tma_store(&mut self, depth: usize, op: OpId) -> Parsed<TmaStore> {
        let (_, _, text) = self.inner(depth, &["boxes"]).ok_or("no boxes")?;
        let text = format!("boxes {text}");
        let lengths = |word| Ok::<Vec<i64>, String>(list(&text, word)?.into_iter().map(i64::from).collect());
        let (shape, boxes) = (lengths("boxes")?, lengths("by")?);
        let bytes = number(after(&text, "], ")?)?.0 as usize;
        let split_bits = number(after(after(&text, "bases [")?, "], ")?)?.0;
        let tile = TmaBoxLayout::standing(&shape, bytes, boxes, list(&text, "bases")?, split_bits);
        let tile = tile.ok_or("no such boxes")?;
        let mut staging = None;
        if let Some((_, _, text)) = self.inner(depth, &["staging"]) {
            let (start, end, channel, [count, bytes, in_flight]) = match numbers(&text)?[..] {
                [start, end, count, bytes, in_flight] => (start, end, None, [count, bytes, in_flight]),
                [start, end, channel, count, bytes, in_flight] => {
                    (start, end, Some(channel), [count, bytes, in_flight])
                }
                _ => return Err("no buffer".to_owned()),
            };
            let buffer = Buffer { offset: start, bytes: end.saturating_sub(start) };
            staging = Some(StagingBuffer { buffer, channel, split: StoreSplit { count, bytes, in_flight } });
        }
        Ok(TmaStore { op, layout: layout(&text, "layout ")?, tile, staging })
    }

    fn strip_mine(&mut self, depth: usize, rest: &str) -> Parsed<Step> {
        let registers_per_iteration = number(after(rest, ", ")?)?.0 as usize;
        let mut ops = Vec::new();
        while let Some((_, word, text)) = self.inner(depth, &["body", "view", "preheader"]) {
            let role = match word.as_str() {
                "body" => StripRole::Body,
                "view" => StripRole::View,
                _ => StripRole::Preheader,
            };
            ops.push((op(&text)?, role));
        }
        let live_out = rest.split_once("live-out").map_or(Ok(Vec::new()), |(_, values)| numbers(values))?;
        let live_out = live_out.into_iter().map(Value).collect();
        let layout = layout(rest, "")?;
        Ok(Step::StripMine(Rc::new(StripMine { layout, registers_per_iteration, ops, live_out })))
    }

    fn mma_group(&mut self, depth: usize, rest: &str) -> Parsed<MmaGroup> {
        let (head, single) = match rest.split_once(':') {
            Some((head, _)) => (head, numbers(head)?.pop()),
            None => (rest, None),
        };
        let ordered = head.starts_with("ordered");
        let order = OrderSpan { acquire: ordered, release: ordered };
        let mut releases = head.split_once("releases").map_or(Ok(Vec::new()), |(_, channels)| numbers(channels))?;
        if let Some(id) = single {
            // The last number is the op.
            releases.pop();
            return Ok(MmaGroup { releases, order, ..MmaGroup::single(OpId(id)) });
        }
        let (mut ops, mut issue) = (Vec::new(), Vec::new());
        while let Some((_, word, text)) = self.inner(depth, &["mma", "issue"]) {
            if word == "mma" {
                ops.push(op(&text)?);
                continue;
            }
            for part in text.split(", ") {
                let id = op(part)?;
                let op = ops.iter().position(|&op| op == id).ok_or("an MMA of another group")?;
                issue.push(MmaIssue { op, extends_n: part.ends_with("extends_n") });
            }
        }
        Ok(MmaGroup { ops, issue, releases, order })
    }

    fn hoisted(&mut self, depth: usize) -> Parsed<Vec<(Value, LayoutId)>> {
        let mut hoisted = Vec::new();
        while let Some((_, _, text)) = self.inner(depth, &["hoist"]) {
            let value = number(text.trim_start_matches('%'))?.0;
            hoisted.push((Value(value), layout(&text, "to ")?));
        }
        Ok(hoisted)
    }

    fn cp_async(&mut self, depth: usize) -> Parsed<Option<Rc<CpAsyncPlan>>> {
        let Some((depth, _, head)) = self.inner(depth, &["cp_async"]) else { return Ok(None) };
        let mut plan = CpAsyncPlan {
            copies: Vec::new(),
            address_ops: Vec::new(),
            stage_bytes: number(after(&head, "stages of ")?)?.0 as usize,
            stages: number(&head)?.0 as usize,
            async_mma: head.contains(", mma_wait at head"),
            barrier_at_head: head.contains(", barrier at head"),
        };
        let all_thread_private = head.ends_with(", thread-private");
        while let Some((_, word, text)) = self.inner(depth, &["address", "copy"]) {
            if word == "address" {
                plan.address_ops.push(op(&text)?);
                continue;
            }
            let (head, accesses) = text.split_once(", at ").ok_or("no accesses")?;
            let accesses = numbers(accesses)?;
            let access = |at: &[u32]| CpAsyncAccess { register: at[0] as usize, xor: at[1], offset: at[2] };
            plan.copies.push(CpAsync {
                load: op(head)?,
                thread_private: all_thread_private || head.contains(", thread-private"),
                smem_offset: number(after(head, " +")?)?.0 as usize,
                vector: number(after(head, ": ")?)?.0 as usize,
                thread_offsets: list(head, "thread")?,
                accesses: accesses.chunks_exact(3).map(access).collect(),
            });
        }
        Ok(Some(Rc::new(plan)))
    }
}
