//! Global symbols of the module.

use crate::backend::ptx::isa::emit::GlobalArray;
use crate::backend::ptx::isa::inst::{Operand, RegClass};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::ir::{Attr, AttrKind, ConstData, Global, Module, Op};
use crate::util::collect::CollectVec as _;

/// Returns the global symbols of a module as bytes.
pub fn globals(module: &Module) -> Vec<GlobalArray> {
    let one = |global: &Global| {
        let ty = module.type_of(global.ty);
        let (count, bytes) = (ty.shape().iter().product::<i64>() as usize, ty.dtype().storage_bits().div_ceil(8));
        let words: Vec<u64> = match &global.value {
            ConstData::Splat(word) => vec![*word; count],
            ConstData::Dense(words) => words.to_vec(),
        };
        let bytes_of = |word: u64| word.to_le_bytes().into_iter().take(bytes as usize);
        let align = u32::try_from(global.alignment).unwrap_or(1).max(bytes);
        GlobalArray { align, bytes: words.into_iter().flat_map(bytes_of).collect_vec() }
    };
    module.globals.iter().map(one).collect_vec()
}

impl Lowering<'_> {
    /// Lowers `get_global` to the address of the symbol.
    pub fn global_address(&mut self, op: &Op) -> Lowered {
        let Some(Attr::Text(name)) = op.attr(AttrKind::Text) else { return Err("a global without a name".to_owned()) };
        let mut globals = self.module.globals.iter();
        let Some(index) = globals.position(|global| *global.name == **name) else {
            return Err(format!("there is no global `{name}`"));
        };
        if self.module.type_of(self.module.globals[index].ty).dtype().storage_bits() < 8 {
            return Err("a global of elements that share a byte".to_owned());
        }
        let address = self.b.copy(Operand::Global(index as u32), RegClass::B64);
        self.define_scalar(op.results[0], address.into());
        Ok(())
    }
}
