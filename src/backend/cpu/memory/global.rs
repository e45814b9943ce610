//! Global arrays of a module: one copy per program, with the representation of GPU memory.

use crate::util::collect::CollectVec as _;
use std::sync::atomic::AtomicU64;

use super::host_memory::Span;
use crate::backend::cpu::interp::value::{Width, Words};
use crate::backend::cpu::ops::cast;
use crate::dtype::DType;
use crate::ir::{Attr, Module};

/// Globals of a program.
#[derive(Debug, Default)]
pub(crate) struct Globals {
    all: Vec<Global>,
}

#[derive(Debug)]
struct Global {
    name: String,
    constant: bool,
    bytes: u64,
    memory: Box<[AtomicU64]>,
}

impl Globals {
    pub fn new(module: &Module) -> Globals {
        let one = |global: &crate::ir::Global| {
            let ty = module.type_of(global.ty);
            let (dtype, count) = (ty.dtype(), ty.shape().iter().product::<i64>() as usize);
            let words = Words::from_data(Width::of(dtype), &global.value, count);
            // A bool is one byte in memory, and one bit in a packed tile.
            let Words::W8(bytes) = (if dtype == DType::I1 { words } else { cast::pack(dtype, &words) }) else {
                unreachable!("packed tiles are bytes")
            };
            let word = |chunk: &[u8]| {
                let mut all = [0; 8];
                all[..chunk.len()].copy_from_slice(chunk);
                AtomicU64::new(u64::from_ne_bytes(all))
            };
            let memory = bytes.chunks(8).map(word).collect();
            Global { name: global.name.clone(), constant: global.constant, bytes: bytes.len() as u64, memory }
        };
        Globals { all: module.globals.iter().map(one).collect_vec() }
    }

    /// Returns the address of the global of this name.
    pub fn address(&self, name: Option<&Attr>) -> Result<u64, String> {
        let Some(Attr::Text(name)) = name else { return Err("get_global without a name".into()) };
        let global =
            self.all.iter().find(|g| g.name == **name).ok_or_else(|| format!("there is no global `{name}`"))?;
        Ok(Span::of_shared(&global.memory).address())
    }

    /// Returns the first bytes of the global of this name, if it has `bytes` bytes.
    pub fn named(&self, name: &str, bytes: usize) -> Option<Span<'_>> {
        let global = self.all.iter().find(|global| global.name == name)?;
        Span::of_shared(&global.memory).part(0, global.bytes)?.part(0, bytes as u64)
    }

    /// Returns the bytes at `address`, if one global contains all of them.
    pub fn find(&self, address: u64, bytes: u64, write: bool) -> Option<Span<'_>> {
        self.all.iter().filter(|g| !(write && g.constant)).find_map(|global| {
            let span = Span::of_shared(&global.memory);
            span.part(0, global.bytes)?.part(address.wrapping_sub(span.address()), bytes)
        })
    }
}
