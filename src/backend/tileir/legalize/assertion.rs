//! Legalization of assertions with values in the message. Tile IR only has a text, so the values
//! are printed if the condition fails. Only scalars are printed: for tiles, the kernel would have
//! to search the failing element.

use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Entry, Literal, Loc, Module, OpId, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// Prints the values of failed assertions, and reduces the assertions to a text.
pub(super) fn run(module: &mut Module, entry: &Entry) {
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        let op = module.op(id).clone();
        if op.code != Opcode::Assert || op.group(1).is_empty() {
            return out.push(id);
        }
        let Some(Attr::Text(text)) = op.attr(AttrKind::Text) else { return out.push(id) };
        let shown: Vec<bool> = op.group(1).iter().map(|&value| module.shape(value).is_empty()).collect_vec();
        let scalars: Vec<Value> =
            op.group(1).iter().zip(&shown).filter(|(_, shown)| **shown).map(|(&v, _)| v).collect_vec();
        if !scalars.is_empty() {
            let place = module.location(op.loc).map(|place| format!("{place}: ")).unwrap_or_default();
            let format = without(text, &shown);
            let message = format!("{}assertion failed: {format}\n", place.replace('%', "%%"));
            print_unless(module, op.group(0)[0], message, &scalars, op.loc, out);
        }
        let plain = without(text, &vec![false; shown.len()]).replace("%%", "%");
        let plain = vec![Attr::Text(plain.into())];
        out.push(module.add_op(Opcode::Assert, &[op.group(0), &[]], plain, vec![], &[], op.loc));
    });
}

/// Prints values if a condition fails.
fn print_unless(
    module: &mut Module,
    condition: Value,
    message: String,
    values: &[Value],
    loc: Loc,
    out: &mut Vec<OpId>,
) {
    let holds = every(module, condition, loc, out);
    let (stay, tell) = (module.add_block(&[]), module.add_block(&[]));
    let (text, token) = (vec![Attr::Text(message.into())], module.intern(Type::Token));
    let print = module.add_op(Opcode::Print, &[values, &[]], text, vec![], &[token], loc);
    for (block, ops) in [(stay, vec![]), (tell, vec![print])] {
        let end = module.add_op(Opcode::Yield, &[&[]], vec![], vec![], &[], loc);
        module.block_mut(block).ops = ops.into_iter().chain([end]).collect_vec();
    }
    out.push(module.add_op(Opcode::If, &[&[holds]], vec![], vec![stay, tell], &[], loc));
}

/// Returns the conjunction of all elements of a condition, as a scalar.
fn every(module: &mut Module, condition: Value, loc: Loc, out: &mut Vec<OpId>) -> Value {
    let shape = module.shape(condition).to_vec();
    if shape.is_empty() {
        return condition;
    }
    let count = shape.iter().product();
    let (row, truth) = (module.intern(Type::tile(DType::I1, [count])), module.intern(Type::scalar(DType::I1)));
    let mut row_of = condition;
    if shape.len() > 1 {
        let reshape = module.add_op(Opcode::Reshape, &[&[condition]], vec![], vec![], &[row], loc);
        out.push(reshape);
        row_of = module.op(reshape).results[0];
    }
    let body = module.add_block(&[truth, truth]);
    let args = module.block(body).args.clone();
    let both = module.add_op(Opcode::AndI, &[&args[..1], &args[1..]], vec![], vec![], &[truth], loc);
    let handed = module.op(both).results.clone();
    let end = module.add_op(Opcode::Yield, &[&handed], vec![], vec![], &[], loc);
    module.block_mut(body).ops = vec![both, end];
    let attrs = vec![Attr::Dim(0), Attr::Identities(vec![Literal { dtype: DType::I1, bits: 1 }])];
    let reduction = module.add_op(Opcode::Reduce, &[&[row_of]], attrs, vec![body], &[truth], loc);
    out.push(reduction);
    module.op(reduction).results[0]
}

/// Returns a format with question marks for the values that are not printed.
fn without(format: &str, shown: &[bool]) -> String {
    let mut text = String::new();
    let mut rest = format;
    let mut shown = shown.iter();
    while let Some(at) = rest.find('%') {
        let letter = |c: char| c == '%' || (c.is_ascii_alphabetic() && c != 'l');
        let Some(length) = rest[at + 1..].find(letter) else { break };
        let end = at + 1 + length + 1;
        let keep = rest[..end].ends_with('%') || shown.next() == Some(&true);
        text.push_str(if keep { &rest[..end] } else { &rest[..at] });
        if !keep {
            text.push('?');
        }
        rest = &rest[end..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_shown_are_question_marks() {
        assert_eq!(without("%d of %5.2f, %lld at 9 %%", &[true, false, true]), "%d of ?, %lld at 9 %%");
        assert_eq!(without("%x%d", &[false, false]), "??");
    }
}
