//! Encoding of the forms of arguments and of hints in a bundle.

use super::wire::{Read, Reader, Writer};
use crate::backend::ptx::OptimizationSet;
use crate::backend::{Hints, PlanOverride};
use crate::kernel::ArgSignature;
use crate::launch::compile::check_hints::check_hints;
use crate::tile::ArrayInfo;

pub(super) fn write_form(to: &mut Writer, form: &ArgSignature) {
    match form {
        ArgSignature::Array { element, rank, writes, table, facts } => {
            to.u8(0);
            to.text(element);
            to.u32(*rank);
            to.flag(*writes);
            to.flag(*table);
            let ArrayInfo { index64, extent64, base_align, unit_stride, extent_div16, stride_div16 } = *facts;
            to.flag(index64);
            to.flag(extent64);
            for word in [base_align, unit_stride, extent_div16, stride_div16] {
                to.u32(word);
            }
        }
        ArgSignature::Number(ty) => {
            to.u8(1);
            to.text(ty);
        }
        ArgSignature::Pointer(ty) => {
            to.u8(2);
            to.text(ty);
        }
        ArgSignature::Constant { ty, hash, text } => {
            to.u8(3);
            to.text(ty);
            to.0.extend(hash);
            to.text(text);
        }
    }
}

pub(super) fn read_form(from: &mut Reader<'_>) -> Read<ArgSignature> {
    Ok(match from.u8()? {
        0 => {
            let (element, rank) = (from.text()?, from.u32()?);
            if rank > 16 {
                return Err(format!("an array of {rank} dimensions"));
            }
            let (writes, table, index64, extent64) = (from.flag()?, from.flag()?, from.flag()?, from.flag()?);
            let [base_align, unit_stride, extent_div16, stride_div16] =
                [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
            let facts = ArrayInfo { index64, extent64, base_align, unit_stride, extent_div16, stride_div16 };
            ArgSignature::Array { element, rank, writes, table, facts }
        }
        1 => ArgSignature::Number(from.text()?),
        2 => ArgSignature::Pointer(from.text()?),
        3 => ArgSignature::Constant { ty: from.text()?, hash: from.array()?, text: from.text()? },
        other => return Err(format!("an argument of kind {other}")),
    })
}

/// The hints of a bundle, in the order of the file.
struct StoredHints<'h> {
    numbers: [&'h mut Option<u32>; 8],
    choices: [&'h mut Option<bool>; 2],
    flags: [&'h mut bool; 5],
    max_ctas: &'h mut u32,
    optimizations: &'h mut OptimizationSet,
}

impl StoredHints<'_> {
    fn new(hints: &mut Hints) -> StoredHints<'_> {
        let Hints {
            num_warps,
            num_stages,
            num_ctas,
            occupancy,
            code_limit,
            loop_limit,
            wait_limit,
            opt_level,
            line_info,
            device_debug,
            memcheck,
            persistent,
            // Checked when the kernel was compiled.
            deterministic: _,
            // Code of a bundle is not traced.
            trace: _,
            plan: PlanOverride { disable_search, disable_pingpong, disable_tma_loads, max_ctas, optimizations },
        } = hints;
        StoredHints {
            numbers: [num_warps, num_stages, num_ctas, occupancy, code_limit, loop_limit, opt_level, wait_limit],
            choices: [line_info, persistent],
            flags: [device_debug, memcheck, disable_search, disable_pingpong, disable_tma_loads],
            max_ctas,
            optimizations,
        }
    }
}

pub(super) fn write_hints(to: &mut Writer, mut hints: Hints) {
    let stored = StoredHints::new(&mut hints);
    stored.numbers.iter().for_each(|number| to.option(**number, Writer::u32));
    stored.choices.iter().for_each(|choice| to.option(**choice, Writer::flag));
    stored.flags.iter().for_each(|flag| to.flag(**flag));
    to.u32(*stored.max_ctas);
    to.u64(stored.optimizations.bits());
}

pub(super) fn read_hints(from: &mut Reader<'_>) -> Read<Hints> {
    let mut hints = Hints::new();
    let stored = StoredHints::new(&mut hints);
    for number in stored.numbers {
        *number = from.option(Reader::u32)?;
    }
    for choice in stored.choices {
        *choice = from.option(Reader::flag)?;
    }
    for flag in stored.flags {
        *flag = from.flag()?;
    }
    *stored.max_ctas = from.u32()?;
    *stored.optimizations = OptimizationSet::from_bits(from.u64()?).ok_or("unknown optimizations")?;
    check_hints(hints).map_err(|error| error.to_string())?;
    Ok(hints)
}
