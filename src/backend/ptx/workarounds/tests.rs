//! Each rewrite, and what it leaves alone.

use super::super::isa::builder::Builder;
use super::super::isa::emit::{self, Function};
use super::super::isa::inst::*;
use super::apply;
use crate::backend::ptx::ptxas_test::assemble;
use crate::target::Target;

/// The instructions of a kernel that stores a value, as text, after the rewrites.
fn rewritten(make: impl FnOnce(&mut Builder, [Operand; 2]) -> Operand) -> Vec<String> {
    let mut function = function(make);
    apply(&mut function);
    assemble(Target::SM_90A, &emit::module(Target::SM_90A, &[], std::slice::from_ref(&function)));
    let text = function.to_string();
    text.lines().map(|line| line.trim().to_owned()).filter(|line| line.ends_with(';')).collect()
}

/// A kernel that computes a value of two 64-bit numbers from memory, and stores it.
fn function(make: impl FnOnce(&mut Builder, [Operand; 2]) -> Operand) -> Function {
    let mut b = Builder::new(Target::SM_90A, "k", 32);
    let base = b.param_value(Ty::U64);
    let mods = MemMods::default();
    let address = Addr::new(base, 0);
    let numbers = [address.clone(), address.plus(8)].map(|addr| b.ld(Space::Global, Ty::B64, &addr, mods).into());
    let result = make(&mut b, numbers);
    let ty = match result {
        Operand::Reg(reg) if reg.class.bits() == 64 => Ty::B64,
        _ => Ty::B32,
    };
    b.st(Space::Global, ty, &address.plus(16), result, mods);
    b.ret();
    b.finish()
}

fn count(lines: &[String], op: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(op)).count()
}

/// A register that holds a constant.
fn held(b: &mut Builder, value: i64, class: RegClass) -> Operand {
    b.copy(value, class).into()
}

#[test]
fn constants_in_registers_become_moves() {
    let lines = rewritten(|b, [x, _]| {
        let five = held(b, 5, RegClass::B64);
        let least = b.min(Ty::S64, five, 1i64 << 25);
        let narrow = b.cvt(Ty::U32, Ty::U64, CvtMods::default(), least);
        let doubled = b.mad(Ty::S32, narrow, 3, narrow);
        let field = b.bfe(Ty::U32, doubled, 2, 3);
        let below = b.setp(Cmp::Lt, Ty::S32, field, 7);
        let (low, _) = b.unpack(x);
        let chosen = b.select(RegClass::B32, below, doubled, low);
        b.add(Ty::S32, chosen, low)
    });
    // 5 * 3 + 5 is 20, and 20 >> 2 & 7 is 5.
    for op in ["min.", "cvt.", "mad.", "bfe.", "selp."] {
        assert_eq!(count(&lines, op), 0, "{lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("mov.b32") && line.ends_with(", 20;")), "{lines:#?}");
}

#[test]
fn registers_with_several_definitions_are_no_constants() {
    let lines = rewritten(|b, [x, _]| {
        let counter = b.copy(3i64, RegClass::B64);
        let label = b.new_label();
        b.emit_label(label);
        let least = b.min(Ty::S64, counter, 100i64);
        let next = b.add(Ty::S64, counter, 1i64);
        b.mov_to(counter, next);
        let again = b.setp(Cmp::Lt, Ty::S64, counter, x);
        b.bra_if(again, false, label, false);
        least
    });
    assert_eq!(count(&lines, "min.s64"), 1, "{lines:#?}");
    let lines = rewritten(|b, [x, _]| {
        let value = b.copy(3i64, RegClass::B64);
        let condition = b.setp(Cmp::Lt, Ty::S64, x, 0i64);
        b.guarded(condition, false, |b| b.mov_to(value, 4i64));
        b.min(Ty::S64, value, 100i64)
    });
    assert_eq!(count(&lines, "min.s64"), 1, "{lines:#?}");
}

#[test]
fn constant_minuends_do_not_feed_extrema() {
    let difference = |extremum: bool| {
        rewritten(move |b, [x, _]| {
            let (low, high) = b.unpack(x);
            let five = held(b, 5, RegClass::B64);
            let least = b.min(Ty::S64, five, 1i64 << 25);
            let five = b.cvt(Ty::U32, Ty::U64, CvtMods::default(), least);
            let difference = b.sub(Ty::S32, five, low);
            if extremum { b.max(Ty::S32, difference, 0) } else { b.xor(Ty::B32, difference, high) }
        })
    };
    let lines = difference(true);
    assert_eq!([count(&lines, "sub"), count(&lines, "not")], [0, 1], "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("add.s32") && line.ends_with(", 6;")), "{lines:#?}");
    let lines = difference(false);
    assert_eq!([count(&lines, "sub"), count(&lines, "not")], [1, 0], "{lines:#?}");
}

#[test]
fn unsigned_extrema_with_zero_vanish() {
    let lines = rewritten(|b, [x, y]| {
        let zero = held(b, 0, RegClass::B64);
        let same = b.max(Ty::U64, x, zero);
        let least = b.min(Ty::S64, same, 0i64);
        let positive = b.setp(Cmp::Gt, Ty::U64, least, 0i64);
        b.select(RegClass::B64, positive, least, y)
    });
    assert_eq!(count(&lines, "max"), 0, "{lines:#?}");
    assert_eq!([count(&lines, "setp.gt"), count(&lines, "setp.ne.u64")], [0, 1], "{lines:#?}");
}

#[test]
fn constant_factors_are_merged() {
    let lines = rewritten(|b, [x, y]| {
        let shifted = b.shl(Ty::B64, x, 31);
        let sum = b.mad(Ty::S64, shifted, 3i64, y);
        let first = b.mul(Ty::S64, x, 0x1000_0001i64);
        let product = b.mul(Ty::S64, first, 0xff00i64);
        b.add(Ty::S64, product, sum)
    });
    assert!(lines.iter().any(|line| line.starts_with("mad.lo.s64") && line.contains(&(3i64 << 31).to_string())));
    let factor = 0x1000_0001i64 * 0xff00;
    assert!(lines.iter().any(|line| line.starts_with("mul.lo.s64") && line.contains(&factor.to_string())));
}

#[test]
fn factors_of_masked_loads_are_merged() {
    let lines = rewritten(|b, [x, y]| {
        // A masked load has two definitions: the padding, and the element under a guard.
        let value = b.copy(7i64, RegClass::B64);
        let inside = b.setp(Cmp::Lt, Ty::S64, y, 100i64);
        b.guarded(inside, false, |b| b.mov_to(value, x));
        let shifted = b.shl(Ty::B64, value, 27);
        b.mov_to(value, y);
        let product = b.mul(Ty::S64, shifted, 0x100_0001i64);
        let sum = b.add(Ty::S64, product, value);
        b.mad(Ty::S64, sum, 3i64, shifted)
    });
    let factor = 0x100_0001i64 << 27;
    let line_of =
        |text: &str| lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:#?}"));
    let product = line_of(&format!(", {factor};"));
    let copy = lines[product].split(", ").nth(1).unwrap();
    // The copy is made before the variable changes.
    assert!(line_of(&format!("mov.b64 {copy}, ")) < line_of("shl.b64"), "{lines:#?}");
}
