//! Parses a schedule from text (tests only).
//!
//! What the text says of ops, rings and channels is the module's
//! and the roles'; it is not read, and shows when the schedule is printed again.

use std::rc::Rc;

use super::cp_async::{CpAsync, CpAsyncAccess, CpAsyncPlan};
use super::pipelines::{PingPong, StageCount, WarpSpecialization};
use super::privatized_array::PrivatizedArray;
use super::program::{
    CarriedMma, ConsumerWait, For, LayoutId, Loop, MmaGroup, MmaIssue, MmaWait, OrderPoint, OrderSpan, Partition,
    SeqId, StripRole, WarpRole,
};
use super::program::{Schedule, Step, StripMine};
use super::sub_step::{ConversionKind, ConvertLayout, SubStep};
use super::tma_store::{StagingBuffer, StoreSplit, TmaStore};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;
use crate::ir::{AtomicMode, OpId, Value};
use crate::layout::Layout;

type Parsed<T> = Result<T, String>;

/// Lines that are left, each with how far in it stands.
struct Lines<'t> {
    lines: std::iter::Peekable<std::vec::IntoIter<(usize, &'t str)>>,
    schedule: Schedule,
}

impl Schedule {
    /// The schedule that a text describes. `roles`: rings and channels.
    pub fn parse(text: &str, roles: Option<Rc<WarpSpecialization>>) -> Parsed<Schedule> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<_> = lines.map(|line| (line.len() - line.trim_start().len(), line.trim())).collect();
        let schedule = Schedule { warp_spec: roles, ..Schedule::default() };
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
    let number = text[..end].parse().map_err(|_| format!("a number is wanted at `{text}`"))?;
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
    text.split_once(word).map(|(_, rest)| rest).ok_or_else(|| format!("`{word}` is wanted"))
}

fn layout(text: &str) -> Parsed<LayoutId> {
    Ok(LayoutId(number(after(text, "as L")?)?.0))
}

fn op(text: &str) -> Parsed<OpId> {
    Ok(OpId(number(text.trim_start())?.0))
}

/// Does a text begin with this word? And the rest.
fn has_word<'t>(text: &'t str, word: &str) -> (bool, &'t str) {
    text.strip_prefix(word).map_or((false, text), |rest| (true, rest))
}

fn acts(word: &str) -> Parsed<WarpRole> {
    [WarpRole::All, WarpRole::Consumer, WarpRole::Producer]
        .into_iter()
        .find(|acts| acts.to_string() == word)
        .ok_or("no agent".to_owned())
}

/// A part of a step.
fn within(word: &str, rest: &str) -> Parsed<SubStep> {
    let numbers = numbers(rest)?;
    let at = |place: usize| numbers.get(place).copied().ok_or("too few numbers");
    let buffer = || Ok::<_, &str>(Buffer { offset: at(0)?, bytes: at(1)?.saturating_sub(at(0)?) });
    Ok(match word {
        "bring" => {
            let how = match () {
                () if rest.contains("by name") => ConversionKind::Registers,
                () if rest.contains("by shuffle") => ConversionKind::Shuffle,
                () if rest.contains("sums") => ConversionKind::SmemAffine,
                () if rest.contains("never") => ConversionKind::Unsupported,
                () => ConversionKind::Smem(at(2)?),
            };
            let plan = numbers[numbers.len() - 1];
            SubStep::ConvertLayout(ConvertLayout { value: Value(at(0)?), to: LayoutId(at(1)?), kind: how, plan })
        }
        "write" => SubStep::SmemWrite(buffer()?),
        "read" => SubStep::SmemRead(buffer()?),
        "access" => SubStep::GlobalAccess(OpId(at(0)?)),
        "parts" => SubStep::Split { count: at(0)?, beside: at(1)? },
        "no" => SubStep::SmemOverflow { bytes: at(0)?, of: at(1)? },
        "drain" => SubStep::TmaStoreWait { written: rest == "writes" },
        _ => SubStep::Barrier { always: rest == "always" },
    })
}

/// The copy of an array.
fn private(text: &str) -> Parsed<PrivatizedArray> {
    let [root, first, copies, start, end] = numbers(text)?[..] else { return Err("no copy".to_owned()) };
    let word = after(text, "by ")?.split(' ').next().unwrap_or_default();
    let mode = AtomicMode::ALL.iter().copied().find(|mode| mode.name() == word).ok_or("no mode")?;
    let place = Buffer { offset: start, bytes: end.saturating_sub(start) };
    Ok(PrivatizedArray { first: OpId(first), array: Value(root), mode, buffer: place, replicas: copies })
}

fn turn(word: &str) -> Parsed<OrderPoint> {
    OrderPoint::ALL.into_iter().find(|turn| turn.to_string() == word).ok_or("no turn".to_owned())
}

impl Lines<'_> {
    /// A line that stands at the left.
    fn top(&mut self, line: &str) -> Parsed<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "agent" => {
                let (name, rest) = rest.split_once(": warps ").ok_or("no warps")?;
                let (start, rest) = number(rest)?;
                let (end, _) = number(after(rest, "..")?)?;
                self.schedule.partitions.push(Partition { role: acts(name)?, warps: start..end, body: SeqId(0) });
            }
            "program" => {
                let body = self.body(0)?;
                let acts = acts(rest)?;
                let agent = self.schedule.partitions.iter_mut().find(|agent| agent.role == acts);
                agent.ok_or("a program of no agent")?.body = body;
            }
            "product" => {
                let (id, form) = rest.split_once(": ").ok_or("no product")?;
                self.schedule.mma_partitions.push((op(id)?, form.to_owned()));
            }
            "layout" => {
                let shape: Vec<i64> = list(rest, "")?.into_iter().map(i64::from).collect();
                let [register, lane, warp] = [list(rest, "register")?, list(rest, "lane")?, list(rest, "warp")?];
                self.schedule.layouts.push(Layout::new(shape, register, lane, warp));
            }
            "shared" => {
                let numbers = numbers(rest)?;
                self.schedule.shared_bytes = numbers[0];
                self.schedule.smem_bytes_per_group = numbers.get(1).copied().unwrap_or(0);
            }
            "combined" => self.schedule.privatized = Some(private(rest)?),
            "ring" | "channel" | "load" => {}
            _ => return Err("an unknown line".to_owned()),
        }
        Ok(())
    }

    /// The next line, if it stands further in than this and begins with one of these words: the rest of it.
    fn inner(&mut self, depth: usize, words: &[&str]) -> Option<(usize, String, String)> {
        let &(at, line) = self.lines.peek()?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let found = at > depth && (words.is_empty() || words.contains(&word));
        found.then(|| {
            self.lines.next();
            (at, word.to_owned(), rest.to_owned())
        })
    }

    /// The steps that stand further in than this.
    fn body(&mut self, depth: usize) -> Parsed<SeqId> {
        let id = SeqId(self.schedule.sequences.len() as u32);
        self.schedule.sequences.push(Vec::new());
        let mut steps = Vec::new();
        while let Some((depth, word, rest)) = self.inner(depth, &[]) {
            steps.push(self.step(depth, &word, &rest).map_err(|problem| format!("{problem}: {word} {rest}"))?);
        }
        self.schedule.sequences[id.0 as usize] = steps;
        Ok(id)
    }

    fn step(&mut self, depth: usize, word: &str, rest: &str) -> Parsed<Step> {
        Ok(match word {
            "let" => Step::Deferred(op(rest)?),
            "do" => Step::Exec(op(rest)?),
            "own" => Step::LocalLoadThreadPrivate(op(rest)?),
            "get" => Step::LocalLoad(op(rest)?),
            "combine" => Step::PrivatizedAtomic(op(rest)?),
            "send" => Step::TmaStore(Box::new(self.send(depth, op(rest.trim_start_matches("by warps "))?)?)),
            "end" => Step::End(op(rest)?),
            "fill" => Step::Produce(number(rest)?.0),
            "take" => Step::Advance(number(rest)?.0),
            "await" => {
                let (late, rest) = has_word(rest, "late ");
                Step::ConsumerWait(ConsumerWait { channel: number(rest)?.0, sunk: late })
            }
            "bring" | "write" | "read" | "access" | "parts" | "no" | "drain" | "meet" => Step::Sub(within(word, rest)?),
            "land" if rest == "all" => Step::Sub(SubStep::MmaWaitAll),
            "land" => {
                let (late, rest) = has_word(rest, "late ");
                let (carried, rest) = has_word(rest, "carried ");
                let younger = number(after(rest, "younger ")?)?.0 as usize;
                let behind = rest.split_once(" behind %").map(|(_, value)| number(value)).transpose()?;
                let behind = behind.map(|(value, _)| Value(value));
                Step::MmaWait(MmaWait {
                    mma: op(rest)?,
                    from_previous_iteration: carried,
                    pending: younger,
                    sunk: late,
                    defer_release: rest.contains(" keeps"),
                    release_after: behind,
                })
            }
            "give" => Step::ConsumerRelease(numbers(rest)?),
            "look" => Step::ConsumerTryWait(number(rest)?.0),
            "turn" if rest.contains("work for %") => {
                let exponentials = Value(number(after(rest, "work for %")?)?.0);
                Step::ExpOrderWait { exponentials, sunk: rest.starts_with("late ") }
            }
            "pass" if rest.starts_with("work") => Step::ExpOrderArrive(Value(number(after(rest, "behind %")?)?.0)),
            "turn" => Step::OrderWait(turn(rest)?),
            "pass" => Step::OrderArrive(turn(rest)?),
            "multiply" => Step::Mma(Box::new(self.multiply(depth, rest)?)),
            "strip" => self.strip(depth, rest)?,
            "for" => {
                let hoisted = self.hoisted(depth)?;
                let ahead = self.ahead(depth)?;
                let mut orbits = Vec::new();
                while let Some((_, _, text)) = self.inner(depth, &["orbit"]) {
                    let (carried, gives) = after(&text, "carried ")?.split_once(';').ok_or("no stages")?;
                    let carried = numbers(carried)?.into_iter().map(|number| number as usize).collect();
                    orbits.push(CarriedMma { mma: op(&text)?, accumulators: carried, releases: numbers(gives)? });
                }
                let mut takes = Vec::new();
                while let Some((_, _, text)) = self.inner(depth, &["dealt"]) {
                    let [_, _, once, loops @ ..] = &numbers(&text)?[..] else { return Err("no stages".to_owned()) };
                    takes.push(StageCount {
                        fixed: *once,
                        per_iteration_of: loops.iter().map(|&id| OpId(id)).collect(),
                    });
                }
                let around = op(rest)?;
                let deal = (!takes.is_empty()).then_some(PingPong { loop_op: around, stages_per_iteration: takes });
                let rounds = self.inner(depth, &["rounds"]);
                let rounds = rounds.map(|(_, _, text)| Ok::<_, String>(number(&text)?.0)).transpose()?;
                let body = self.body(depth)?;
                let leave = self.lines.next_if_eq(&(depth, "leave")).map(|_| self.body(depth)).transpose()?;
                Step::For(Box::new(For {
                    op: around,
                    hoisted,
                    cp_async: ahead,
                    carried_mmas: orbits,
                    pingpong: deal,
                    unroll: rounds,
                    body,
                    epilogue: leave,
                }))
            }
            "loop" => {
                let hoisted = self.hoisted(depth)?;
                Step::Loop(Box::new(Loop { op: op(rest)?, hoisted, body: self.body(depth)? }))
            }
            "if" => {
                let quiet = rest.starts_with("quiet ");
                let mut arms = vec![self.body(depth)?];
                if self.lines.next_if_eq(&(depth, "else")).is_some() {
                    arms.push(self.body(depth)?);
                }
                Step::If { op: op(rest.trim_start_matches("quiet "))?, arms, pure: quiet }
            }
            _ => return Err("an unknown step".to_owned()),
        })
    }

    fn send(&mut self, depth: usize, op: OpId) -> Parsed<TmaStore> {
        let (_, _, text) = self.inner(depth, &["boxes"]).ok_or("no boxes")?;
        let lengths = |word| Ok::<Vec<i64>, String>(list(&text, word)?.into_iter().map(i64::from).collect());
        let (shape, boxes) = (lengths("of")?, lengths("by")?);
        let bytes = number(after(&text, "], ")?)?.0 as usize;
        let cuts = number(after(after(&text, "bits [")?, "], ")?)?.0;
        let tile = TmaBoxLayout::standing(&shape, bytes, boxes, list(&text, "bits")?, cuts).ok_or("no such boxes")?;
        let mut outbox = None;
        if let Some((_, _, text)) = self.inner(depth, &["outbox"]) {
            let (start, end, stage, [count, bytes, slots]) = match numbers(&text)?[..] {
                [start, end, count, bytes, slots] => (start, end, None, [count, bytes, slots]),
                [start, end, channel, count, bytes, slots] => (start, end, Some(channel), [count, bytes, slots]),
                _ => return Err("no place".to_owned()),
            };
            let place = Buffer { offset: start, bytes: end.saturating_sub(start) };
            outbox = Some(StagingBuffer {
                buffer: place,
                channel: stage,
                split: StoreSplit { count, bytes, in_flight: slots },
            });
        }
        Ok(TmaStore { op, layout: layout(&text)?, tile, staging: outbox })
    }

    fn strip(&mut self, depth: usize, rest: &str) -> Parsed<Step> {
        let piece = number(after(rest, ", ")?)?.0 as usize;
        let mut parts = Vec::new();
        while let Some((_, word, text)) = self.inner(depth, &["piece", "name", "before"]) {
            let part = match word.as_str() {
                "piece" => StripRole::Body,
                "name" => StripRole::View,
                _ => StripRole::Preheader,
            };
            parts.push((op(&text)?, part));
        }
        let gives = rest.split_once("gives").map_or(Ok(Vec::new()), |(_, gives)| numbers(gives))?;
        let gives = gives.into_iter().map(Value).collect();
        // `strip as L0, …`
        Ok(Step::StripMine(Rc::new(StripMine {
            layout: layout(rest)?,
            registers_per_iteration: piece,
            ops: parts,
            live_out: gives,
        })))
    }

    fn multiply(&mut self, depth: usize, rest: &str) -> Parsed<MmaGroup> {
        let (head, single) = match rest.split_once(':') {
            Some((head, _)) => (head, numbers(head)?.pop()),
            None => (rest, None),
        };
        let is = |what: &str| head.starts_with("in turn") || head.starts_with(what);
        let turn = OrderSpan { acquire: is("where a turn begins"), release: is("where a turn ends") };
        let mut gives = head.split_once("gives").map_or(Ok(Vec::new()), |(_, gives)| numbers(gives))?;
        if let Some(id) = single {
            // The last number is the op's.
            gives.pop();
            return Ok(MmaGroup { releases: gives, order: turn, ..MmaGroup::of(OpId(id)) });
        }
        let (mut ops, mut issue) = (Vec::new(), Vec::new());
        while let Some((_, word, text)) = self.inner(depth, &["product", "issue"]) {
            if word == "product" {
                ops.push(op(&text)?);
                continue;
            }
            for part in text.split(", ") {
                let id = op(part)?;
                let op = ops.iter().position(|&op| op == id).ok_or("a product that is not one of them")?;
                issue.push(MmaIssue { op, extends_n: part.ends_with("wider") });
            }
        }
        Ok(MmaGroup { ops, issue, releases: gives, order: turn })
    }

    fn hoisted(&mut self, depth: usize) -> Parsed<Vec<(Value, LayoutId)>> {
        let mut hoisted = Vec::new();
        while let Some((_, _, text)) = self.inner(depth, &["hoist"]) {
            let value = number(text.trim_start_matches('%'))?.0;
            hoisted.push((Value(value), layout(&text)?));
        }
        Ok(hoisted)
    }

    fn ahead(&mut self, depth: usize) -> Parsed<Option<Rc<CpAsyncPlan>>> {
        let Some((depth, _, head)) = self.inner(depth, &["ahead"]) else { return Ok(None) };
        let mut ahead = CpAsyncPlan {
            copies: Vec::new(),
            address_ops: Vec::new(),
            stage_bytes: number(after(&head, "stages of ")?)?.0 as usize,
            stages: number(&head)?.0 as usize,
            async_mma: head.contains("products land"),
            barrier_at_head: head.ends_with("threads meet at the head"),
        };
        let all_own = head.ends_with("own elements");
        while let Some((_, word, text)) = self.inner(depth, &["scalar", "copy"]) {
            if word == "scalar" {
                ahead.address_ops.push(op(&text)?);
                continue;
            }
            let (head, pieces) = text.split_once(", at ").ok_or("no pieces")?;
            let places = numbers(pieces)?;
            let piece = |at: &[u32]| CpAsyncAccess { register: at[0] as usize, xor: at[1], offset: at[2] };
            ahead.copies.push(CpAsync {
                load: op(head)?,
                thread_private: all_own || head.contains(" own elements"),
                smem_offset: number(after(head, " +")?)?.0 as usize,
                vector: number(after(head, ": ")?)?.0 as usize,
                thread_offsets: list(head, "thread")?,
                accesses: places.chunks_exact(3).map(piece).collect(),
            });
        }
        Ok(Some(Rc::new(ahead)))
    }
}
