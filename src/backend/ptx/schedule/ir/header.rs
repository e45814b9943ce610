//! Header of a schedule: kernel, warps, pipelines and the user's lines of loads, MMAs and stores.

use crate::util::collect::CollectVec as _;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::pipelines::WarpSpecialization;
use super::print::join;
use super::program::{Schedule, SeqId, Step, StripRole, WarpRole};
use crate::ir::{BlockId, Module, OpId, Opcode};
use crate::target::Target;

/// Prefix of the lines that [`without_deferred`] removes.
const DEFERRED: &str = "defer ";

impl Schedule {
    /// Returns the full text, after a header whose lines begin with `#`.
    pub fn to_report(&self, module: &Module, body: BlockId, name: &str, target: Target) -> String {
        self.header(module, body, name, target) + &self.to_text(module)
    }

    /// Returns the line of each step in [`Schedule::to_report`], from 1.
    pub fn step_lines(&self, module: &Module, body: BlockId) -> FxHashMap<(SeqId, usize), u32> {
        let header = self.header(module, body, "", Target::SM_80).lines().count() as u32;
        let mut lines = self.printed(module).step_lines;
        lines.values_mut().for_each(|line| *line += header);
        lines
    }

    fn header(&self, module: &Module, body: BlockId, name: &str, target: Target) -> String {
        let mut text = format!("# kernel {name}, {target}, {} bytes of shared memory\n", self.smem_bytes);
        let warps = self.partitions.iter().map(|partition| {
            let form = self.warp_spec.as_ref().filter(|_| partition.role == WarpRole::Consumer);
            format!(
                "{} {}{}",
                partition.warps.len(),
                partition.role,
                form.map_or_else(String::new, |spec| groups(spec))
            )
        });
        let _ = writeln!(text, "# warps: {}", join(warps, ", "));
        if let Some(spec) = &self.warp_spec {
            let pipelines = spec.pipelines.iter().enumerate().map(|(index, pipeline)| {
                format!("{index}: {} stages of {} bytes", pipeline.num_stages, pipeline.stage_bytes)
            });
            let _ = writeln!(text, "# pipelines: {}", join(pipelines, "; "));
        }
        let methods = self.methods();
        let main = self.main_loop();
        let inside = main.map_or_else(Vec::new, |id| {
            let regions = &module.op(id).regions;
            regions.iter().flat_map(|&region| accesses(module, region)).collect_vec()
        });
        if let Some(id) = main {
            let _ = writeln!(text, "# main loop: op {}{}", id.index(), location(module, id));
            inside.iter().for_each(|&id| line(&mut text, module, id, &methods));
        }
        let outside: Vec<OpId> = accesses(module, body).into_iter().filter(|id| !inside.contains(id)).collect_vec();
        if !outside.is_empty() {
            let _ = writeln!(text, "# {}", if main.is_some() { "outside of the main loop:" } else { "no loop:" });
            outside.iter().for_each(|&id| line(&mut text, module, id, &methods));
        }
        text
    }

    /// Returns the innermost loop with MMAs; without MMAs, the last innermost loop.
    fn main_loop(&self) -> Option<OpId> {
        let partition = self.partitions.iter().find(|partition| partition.role != WarpRole::Producer)?;
        let mut loops: Vec<(usize, OpId, bool)> = Vec::new();
        self.loops_inside(partition.body, 0, &mut loops);
        loops.into_iter().max_by_key(|&(depth, _, has_mma)| (has_mma, depth)).map(|(_, id, _)| id)
    }

    fn loops_inside(&self, sequence: SeqId, depth: usize, loops: &mut Vec<(usize, OpId, bool)>) {
        for step in self.steps(sequence) {
            let inner = step.sequences();
            if let (Step::For(_) | Step::Loop(_), Some(id)) = (step, step.op()) {
                let has_mma = inner.iter().flat_map(|&body| self.steps(body)).any(|step| matches!(step, Step::Mma(_)));
                loops.push((depth, id, has_mma));
            }
            inner.iter().for_each(|&body| self.loops_inside(body, depth + 1, loops));
        }
    }

    /// Returns the method of execution of each op that the threads do not execute directly.
    fn methods(&self) -> FxHashMap<OpId, String> {
        let mut methods = FxHashMap::default();
        let channels = self.warp_spec.iter().flat_map(|spec| spec.channels.iter().enumerate());
        for (index, channel) in channels {
            let method = format!("TMA, channel {index}, pipeline {}", channel.pipeline);
            methods.extend(channel.loads.iter().map(|load| (load.load, method.clone())));
        }
        for step in self.sequences.iter().flatten() {
            match step {
                Step::For(step) => {
                    let copies = step.cp_async.iter().flat_map(|plan| &plan.copies);
                    methods.extend(copies.map(|copy| (copy.load, "cp.async".to_owned())));
                }
                Step::StripMine(strip_mine) => {
                    let body = strip_mine.ops.iter().filter(|(_, role)| *role == StripRole::Body);
                    methods.extend(body.map(|&(id, _)| (id, "strip-mined".to_owned())));
                }
                Step::TmaStore(store) => {
                    let form = if store.staging.is_some() { "TMA, per warp" } else { "TMA" };
                    methods.insert(store.op, form.to_owned());
                }
                Step::PrivatizedAtomic(id) => drop(methods.insert(*id, "privatized".to_owned())),
                _ => {}
            }
        }
        methods
    }
}

/// Returns a report without the deferred values, which have no instructions at their position.
pub fn without_deferred(report: &str) -> String {
    report.lines().filter(|line| !line.trim_start().starts_with(DEFERRED)).map(|line| format!("{line}\n")).collect()
}

fn groups(spec: &WarpSpecialization) -> String {
    match (spec.pingpong_groups(), spec.data_partitions) {
        (1, 1) => String::new(),
        (1, count) => format!(" ({count} data partitions)"),
        (count, _) => format!(" (ping-pong x{count})"),
    }
}

/// Returns the kind of an op that the header lists.
fn kind(code: Opcode) -> Option<&'static str> {
    Some(match code {
        Opcode::LoadView | Opcode::LoadPtr => "load",
        code if code.is_mma() => "mma",
        Opcode::StoreView | Opcode::StorePtr => "store",
        Opcode::AtomicRmw | Opcode::AtomicCas | Opcode::AtomicRedView => "atomic",
        _ => return None,
    })
}

/// Returns the loads, MMAs, stores and atomics of a block and of its regions.
fn accesses(module: &Module, block: BlockId) -> Vec<OpId> {
    let mut ops = Vec::new();
    module.walk(block, &mut |id| ops.extend(kind(module.op(id).code).map(|_| id)));
    ops
}

fn line(text: &mut String, module: &Module, id: OpId, methods: &FxHashMap<OpId, String>) {
    let Some(kind) = kind(module.op(id).code) else { return };
    let method = methods.get(&id).map_or_else(String::new, |method| format!(", {method}"));
    let _ = writeln!(text, "#   {kind} {}{method}{}", id.index(), location(module, id));
}

/// Returns the user's file, line and column of an op.
fn location(module: &Module, id: OpId) -> String {
    module.location(module.op(id).loc).map_or_else(String::new, |location| format!(", {location}"))
}
