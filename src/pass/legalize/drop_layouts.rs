//! Removal of `with_layout`, for back ends whose compiler decides the layouts of tiles.

use crate::ir::{BlockId, Module, Opcode, Substitution};
use crate::pass::transform::op_writer::OpWriter;

/// Replaces the result of each `with_layout` by its operand. Returns `None` if the module has none.
pub(crate) fn drop_layouts(module: &Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    let mut found = false;
    module.walk(body, &mut |id| found |= module.op(id).code == Opcode::WithLayout);
    if !found {
        return None;
    }
    let mut module = module.clone();
    let mut values = Substitution::new();
    block(&mut OpWriter::new(&mut module), body, &mut values);
    values.apply(&mut module, body);
    Some(module)
}

fn block(ops: &mut OpWriter<'_>, body: BlockId, values: &mut Substitution) {
    let (list, outer) = ops.begin_block(body);
    for id in list {
        let op = ops.module.op(id).clone();
        op.regions.iter().for_each(|&region| block(ops, region, values));
        match op.code {
            Opcode::WithLayout => values.replace(op.results[0], values.resolve(op.operands[0])),
            _ => ops.keep(id),
        }
    }
    ops.end_block(body, outer);
}
