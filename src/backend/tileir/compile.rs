//! Compilation of an optimized module to bytecode: legalization, no-wrap flags, memory order,
//! hints, verification, output.

use super::access_hints;
use super::bytecode::required_version::required_version;
use super::bytecode::write::{WriteOptions, write};
use super::default_hints;
use super::interface::{CompileOptions, Compiled, params};
use super::legalize::{legalize, read_tf32_as_f32};
use super::memory_tokens::order_memory;
use super::no_wrap;
use super::target_requirements;
use super::unsupported_hints;
use super::version::Version;
use crate::backend::Hints;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{self, Attr, AttrKind, Flag, HintValue, Module, Opcode, verify};
use crate::pass;
use crate::pass::manager::apply;
use crate::target::Target;
use crate::util::collect::CollectVec as _;

/// Compiles the only entry of a verified and optimized module to Tile IR bytecode.
///
/// # Errors
/// * [`Error::Unsupported`], with places in the user's source, if the target or version lacks a
///   feature of the kernel.
/// * [`Error::Compile`] if a stage broke the module (a defect of this crate).
pub fn compile(module: &Module, target: Target, options: &CompileOptions) -> Result<Compiled> {
    let [entry] = &module.entries[..] else {
        let count = module.entries.len();
        let message = format!("a module of one entry is needed, not of {count}");
        return Err(Error::Unsupported(vec![Diagnostic::new(message, None)]));
    };
    let name = entry.name.clone();
    let meant = pass::expand_inline_ptx(module);
    let module = meant.as_ref().unwrap_or(module);
    unsupported_hints::check(module)?;
    target_requirements::check(module, target)?;
    let dropped = pass::drop_layouts(module);
    let module = dropped.as_ref().unwrap_or(module);
    let expanded = pass::expand_scaled_mma(module, true);
    let module = expanded.as_ref().unwrap_or(module);
    let mut module = pass::split_extents(module, false).map_err(Error::Unsupported)?.unwrap_or_else(|| module.clone());
    if let Some(expanded) = pass::expand_gather(&module) {
        module = expanded;
    }
    if let Some(ordered) = pass::expand_ordered_reductions(&module).map_err(Error::Unsupported)? {
        module = ordered;
    }
    drop_launch_locations(&mut module);
    if options.version.is_some_and(|version| version < Version::V13_4) {
        apply("drop_assumptions", &mut module, drop_assumptions);
    } else if options.version.is_some() {
        apply("saturate", &mut module, saturate);
    }
    let conditions = legalize(&mut module, options.guards);
    if target.arch < 90 {
        read_tf32_as_f32(&mut module);
    }
    apply("no_wrap", &mut module, no_wrap::mark);
    if options.hints.plan.disable_tma_loads {
        for id in access_hints::undecided(&module) {
            access_hints::disallow_tma(&mut module, id);
        }
    }
    let hints = default_hints::apply(&mut module, target, options.hints);
    apply("order_memory", &mut module, order_memory);
    add_hints(&mut module, target, hints);
    module.producer = Some(concat!("cutlet ", env!("CARGO_PKG_VERSION")).to_string());
    verify(&module).map_err(|problems| Error::Compile {
        kernel: name.clone(),
        stage: "the verifier after the Tile IR stages",
        log: problems.iter().map(ToString::to_string).collect_vec().join("\n"),
    })?;
    let version = options.version.unwrap_or_else(|| required_version(&module).max(Version::first_for(target)));
    let written = WriteOptions { version: Some(version), target: Some(target), debug: true };
    let bytecode = write(&module, &written)?;
    if version < Version::V13_3 {
        module.producer = None;
    }
    let params = params(&module);
    Ok(Compiled { bytecode, module, entry: name, params, conditions })
}

/// Replaces the places of the ops that the launch created (the entry and the description of its
/// arguments) by that of the kernel's first op. So a kernel has one bytecode file for all launch
/// places, and its cached machine code is found.
fn drop_launch_locations(module: &mut Module) {
    let (launch, body) = (module.entries[0].loc, module.entries[0].body);
    let mut first = None;
    module.walk(body, &mut |id| {
        let loc = module.op(id).loc;
        if first.is_none() && module.location(loc).is_some() && module.location(loc) != module.location(launch) {
            first = Some(loc);
        }
    });
    let Some(first) = first else { return };
    let place = module.location(launch).cloned();
    let mut made = Vec::new();
    module.walk(body, &mut |id| made.extend((module.location(module.op(id).loc) == place.as_ref()).then_some(id)));
    made.into_iter().for_each(|id| module.op_mut(id).loc = first);
    module.entries[0].loc = first;
}

/// Removes `inbounds` for versions that lack it; the access is checked then.
fn drop_assumptions(module: &mut Module) {
    for_every_op(module, |op| {
        if matches!(op.code, Opcode::LoadView | Opcode::StoreView) {
            op.attrs.retain(|attr| attr.kind() != AttrKind::Inbounds);
        }
    });
}

/// Sets saturation of float-to-integer conversions, for versions that have it: the semantics of
/// this crate.
fn saturate(module: &mut Module) {
    for_every_op(module, |op| {
        if op.code == Opcode::FToI && !op.flag(Flag::Saturating) {
            op.attrs.push(Attr::Flag(Flag::Saturating));
        }
    });
}

fn for_every_op(module: &mut Module, mut change: impl FnMut(&mut ir::Op)) {
    let mut all = Vec::new();
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| all.push(id));
    }
    all.into_iter().for_each(|id| change(module.op_mut(id)));
}

fn add_hints(module: &mut Module, target: Target, hints: Hints) {
    let requested = [
        ("num_cta_in_cga", hints.num_ctas.filter(|_| target.arch >= 90)),
        ("occupancy", hints.occupancy),
        // Versions before 13.5 have these two numbers.
        ("num_worker_warps_per_cta", hints.num_warps.map(|n| if n <= 4 { 4 } else { 8 })),
    ];
    let keys: Vec<(String, HintValue)> = requested
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_string(), HintValue::Int(value?.into()))))
        .collect_vec();
    if !keys.is_empty() {
        for entry in &mut module.entries {
            entry.hints.0.push((format!("sm_{}", target.arch), keys.clone()));
        }
    }
}
