//! Code of one kernel for one target, with the data of its launches.

use super::wire::{Read, Reader, Writer};
use crate::backend::ptx::tensor_map::{Dim, L2Promotion, MapElement, Number, Swizzle, TensorMap};
use crate::backend::ptx::{Assertion, FailureSites, ParamKind, WaitObject, WaitSite};
use crate::dtype::DType;
use crate::error::{Location, WaitRole};
use crate::runtime::LaunchConfig;
use crate::target::Target;

/// Code for one target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Image {
    pub target: Target,
    /// The code is Tile IR bytecode, and not PTX.
    pub tile_ir: bool,
    /// Bytecode, or PTX as UTF-8.
    pub code: Vec<u8>,
    /// Machine code of `code`.
    pub machine_code: Option<Vec<u8>>,
    pub entry: String,
    pub threads: u32,
    pub shared_bytes: u32,
    pub params: Vec<ParamKind>,
    pub failures: FailureSites,
}

impl Image {
    pub fn config(&self) -> LaunchConfig {
        LaunchConfig { threads: self.threads, shared_bytes: self.shared_bytes, cluster: 1 }
    }

    /// Returns true if a GPU can execute this code. A GPU executes code for older architectures,
    /// unless it is accelerated code (`a`) of one architecture or exceeds the shared memory.
    pub fn runs_on(&self, gpu: Target) -> bool {
        let made_for = self.target.arch == gpu.arch && (gpu.accelerated || !self.target.accelerated);
        let older = self.target.arch < gpu.arch && !self.target.accelerated;
        (made_for || older) && self.shared_bytes <= gpu.max_shared_bytes()
    }

    /// Returns the machine code, if a GPU can execute it. Machine code is compatible with later
    /// architectures of the same major version only.
    pub fn machine_code_for(&self, gpu: Target) -> Option<&[u8]> {
        let code = self.machine_code.as_deref()?;
        (self.runs_on(gpu) && self.target.arch / 10 == gpu.arch / 10).then_some(code)
    }

    pub fn write(&self, to: &mut Writer) {
        to.text(&self.target.to_string());
        to.flag(self.tile_ir);
        to.bytes(&self.code);
        to.option(self.machine_code.as_deref(), Writer::bytes);
        to.text(&self.entry);
        to.u32(self.threads);
        to.u32(self.shared_bytes);
        to.list(&self.params, write_param);
        to.list(&self.failures.assertions, write_assertion);
        to.option(self.failures.wait_limit, Writer::u32);
        to.list(&self.failures.waits, write_wait);
    }

    /// Decodes an image. `words`: number of parameters of the entry.
    pub fn read(from: &mut Reader<'_>, words: usize) -> Read<Image> {
        let target: Target = from.text()?.parse()?;
        let tile_ir = from.flag()?;
        let code = from.bytes()?.to_vec();
        if !tile_ir && std::str::from_utf8(&code).is_err() {
            return Err("PTX that is no text".into());
        }
        let machine_code = from.option(|from| from.bytes().map(<[u8]>::to_vec))?;
        let entry = from.text()?;
        if entry.is_empty() || entry.contains('\0') {
            return Err(format!("an entry named {entry:?}"));
        }
        let (threads, shared_bytes) = (from.u32()?, from.u32()?);
        let params = from.list(|from| read_param(from, words))?;
        let assertions = from.list(read_assertion)?;
        let (wait_limit, waits) = (from.option(Reader::u32)?, from.list(read_wait)?);
        let failures = FailureSites { assertions, wait_limit, waits };
        let notes = params.contains(&ParamKind::Failure);
        if !(1..=1024).contains(&threads) || notes == (failures.words() == 0) {
            return Err("code whose description contradicts itself".into());
        }
        Ok(Image { target, tile_ir, code, machine_code, entry, threads, shared_bytes, params, failures })
    }
}

fn write_param(to: &mut Writer, param: &ParamKind) {
    match param {
        ParamKind::Word { index, bytes } => {
            to.u8(0);
            to.u32(*index);
            to.u32(*bytes);
        }
        ParamKind::Failure => to.u8(1),
        ParamKind::TensorMap(map) => {
            to.u8(2);
            write_map(to, map);
        }
        ParamKind::Trace => to.u8(3),
    }
}

fn read_param(from: &mut Reader<'_>, words: usize) -> Read<ParamKind> {
    match from.u8()? {
        0 => {
            let (index, bytes) = (index(from, words)?, width(from)?);
            Ok(ParamKind::Word { index, bytes })
        }
        1 => Ok(ParamKind::Failure),
        2 => read_map(from, words).map(ParamKind::TensorMap),
        3 => Ok(ParamKind::Trace),
        other => Err(format!("a parameter of kind {other}")),
    }
}

fn index(from: &mut Reader<'_>, words: usize) -> Read<u32> {
    let index = from.u32()?;
    if (index as usize) < words { Ok(index) } else { Err(format!("parameter {index} of {words}")) }
}

fn width(from: &mut Reader<'_>) -> Read<u32> {
    let bytes = from.u32()?;
    if [1, 2, 4, 8].contains(&bytes) { Ok(bytes) } else { Err(format!("a parameter of {bytes} bytes")) }
}

const ELEMENTS: [MapElement; 8] = {
    use MapElement::*;
    [U8, U16, U32, U64, Tf32, F32, F16, BF16]
};
const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
const PROMOTIONS: [L2Promotion; 4] = [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256];

/// Returns the index of a value in a list of all values.
fn place<X: PartialEq>(all: &[X], value: &X) -> u8 {
    all.iter().position(|one| one == value).expect("the list has every value") as u8
}

fn write_map(to: &mut Writer, map: &TensorMap) {
    to.u32(map.base);
    to.list(&map.dims, |to, dim| {
        write_number(to, dim.extent);
        write_number(to, dim.stride);
        to.u32(dim.boxed);
    });
    to.u8(place(&ELEMENTS, &map.element));
    to.u8(place(&SWIZZLES, &map.swizzle));
    to.u8(place(&PROMOTIONS, &map.promotion));
    to.u8(map.ragged.map_or(0, |dim| dim as u8 + 1));
}

fn read_map(from: &mut Reader<'_>, words: usize) -> Read<TensorMap> {
    let base = index(from, words)?;
    let dims = from.list(|from| {
        let (extent, stride) = (read_number(from, words)?, read_number(from, words)?);
        let boxed = from.u32()?;
        // Limits the product of several extents, which is a number of bytes.
        if boxed > 256 { Err(format!("a box of {boxed}")) } else { Ok(Dim { extent, stride, boxed }) }
    })?;
    let (element, swizzle) = (from.one_of(&ELEMENTS)?, from.one_of(&SWIZZLES)?);
    let promotion = from.one_of(&PROMOTIONS)?;
    let ragged = usize::from(from.u8()?).checked_sub(1);
    let map = TensorMap { base, dims, element, swizzle, promotion, ragged };
    if map.is_possible() { Ok(map) } else { Err("a tensor map that no hardware has".into()) }
}

fn write_number(to: &mut Writer, number: Number) {
    match number {
        Number::Constant(value) => {
            to.u8(0);
            to.u64(value as u64);
        }
        Number::Param { index, bytes } => {
            to.u8(1);
            to.u32(index);
            to.u32(bytes);
        }
    }
}

fn read_number(from: &mut Reader<'_>, words: usize) -> Read<Number> {
    match from.u8()? {
        0 => Ok(Number::Constant(from.u64()? as i64)),
        1 => {
            let (index, bytes) = (index(from, words)?, width(from)?);
            Ok(Number::Param { index, bytes })
        }
        other => Err(format!("a number of kind {other}")),
    }
}

fn write_location(to: &mut Writer, location: Option<&Location>) {
    to.option(location, |to, place| {
        to.text(&place.file);
        to.u32(place.line);
        to.u32(place.column);
    });
}

fn read_location(from: &mut Reader<'_>) -> Read<Option<Location>> {
    from.option(|from| {
        let file = from.text()?.into();
        Ok(Location { file, line: from.u32()?, column: from.u32()? })
    })
}

const ROLES: [WaitRole; 3] = [WaitRole::All, WaitRole::Consumer, WaitRole::Producer];
const OBJECTS: [WaitObject; 3] = [WaitObject::Mbarrier, WaitObject::NamedBarrier, WaitObject::Memory];

fn write_wait(to: &mut Writer, wait: &WaitSite) {
    to.text(&wait.step);
    to.u8(place(&ROLES, &wait.role));
    to.u8(place(&OBJECTS, &wait.object));
    write_location(to, wait.location.as_ref());
}

fn read_wait(from: &mut Reader<'_>) -> Read<WaitSite> {
    let step = from.text()?.into();
    let (role, object) = (from.one_of(&ROLES)?, from.one_of(&OBJECTS)?);
    Ok(WaitSite { step, role, object, location: read_location(from)? })
}

fn write_assertion(to: &mut Writer, assertion: &Assertion) {
    to.text(&assertion.message);
    write_location(to, assertion.location.as_ref());
    to.list(&assertion.values, |to, dtype| to.u8(place(&DType::ALL, dtype)));
    to.list(&assertion.shape, |to, &extent| to.u64(extent as u64));
}

fn read_assertion(from: &mut Reader<'_>) -> Read<Assertion> {
    let message = from.text()?.into();
    let location = read_location(from)?;
    let values = from.list(|from| from.one_of(&DType::ALL))?;
    let shape = from.list(|from| match from.u64()? {
        // Limits the extents of a tile, so that their product does not overflow.
        extent @ 1..=0x100_0000 => Ok(extent as i64),
        extent => Err(format!("an extent of {extent}")),
    })?;
    if shape.len() > 16 || shape.iter().try_fold(1i64, |product, &n| product.checked_mul(n)).is_none() {
        return Err("a condition that is no tile".into());
    }
    Ok(Assertion { message, location, values, shape })
}
