//! Planted races in kernels with locks, flags, counters, tables of arrays and addresses. The
//! instrumented code of the ptx back end runs in the interpreter and on a GPU.

use super::tests::{devices, recorded};
use crate::backend::cpu::Checks;
use crate::backend::ptx::ptxas_test::assemble;
use crate::error::Result;
use crate::launch::inspect::text::inspect;
use crate::prelude::*;
use crate::runtime::ArraySpec;
use crate::target::Target;
use crate::{AtomicOptions, Constant, LoadOptions, Scope, StoreOptions, bid, full, if_else, if_then, ones};

/// Accesses of a kernel outside of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Outside {
    Nothing,
    LoadBefore,
    StoreBehind,
    OtherLock,
}

fn locked(locks: ArrayMut<i32, 1>, sums: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>, fault: Outside) {
    if fault == Outside::LoadBefore {
        if_then(bid(0).eq(5), || y.store(0, sums.load(0, [4]))); // the fault: `line + 2`
    }
    let lock = locks.entry(if fault == Outside::OtherLock { bid(0) % 2 } else { crate::scalar(0) });
    crate::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
    sums.store(0, sums.load(0, [4]) + 1);
    lock.atomic_xchg(0);
    if fault == Outside::StoreBehind {
        if_then(bid(0).eq(5), || sums.store(0, ones([4])));
    }
}

#[test]
fn accesses_outside_of_a_lock() -> Result<()> {
    for device in devices() {
        let run = |fault| {
            let (mut locks, mut sums, mut y) = (device.zeros([2])?, device.zeros([4])?, device.zeros([4])?);
            recorded(device, locked, 20, (&mut locks, &mut sums, &mut y, Constant(fault)))?;
            sums.to_vec()
        };
        assert_eq!(run(Outside::Nothing)?, [20; 4]);
        for fault in [Outside::LoadBefore, Outside::StoreBehind, Outside::OtherLock] {
            let text = run(fault).expect_err("an access outside of the lock").to_string();
            assert!(text.contains("a race: this ") && text.contains("element 0 of an array of 4"), "{fault:?}: {text}");
            assert!(fault == Outside::OtherLock || text.contains("tile block (5, 0, 0)"), "{fault:?}: {text}");
        }
    }
    Ok(())
}

/// The second tile block waits for the number of the first one, which it may change afterwards.
fn passed(x: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>, changes: bool) {
    if_else(
        bid(0).eq(0),
        || {
            x.store(0, full::<i32, 1>([8], 7));
            flag.store_with(0, ones([1]), StoreOptions::new().release(Scope::Device));
            if changes {
                x.store(0, full::<i32, 1>([8], 8));
            }
        },
        || {
            let load = LoadOptions::new().acquire(Scope::Device);
            crate::while_loop((), |()| flag.load_with(0, [1], load.clone()).sum(0).eq(0), |()| ());
            x.store(1, x.load(0, [8]));
        },
    );
}

#[test]
fn stores_after_the_flag() -> Result<()> {
    for device in devices() {
        for changes in [false, true] {
            let (mut x, mut flag) = (device.zeros([16])?, device.zeros([1])?);
            let result = recorded(device, passed, 2, (&mut x, &mut flag, Constant(changes)));
            if changes {
                let text = result.expect_err("a store behind the flag").to_string();
                assert!(text.contains("a race: this ") && text.contains("element 0 of an array of 16"), "{text}");
            } else {
                result?;
                assert_eq!(x.to_vec()?[8..], [7; 8]);
            }
        }
    }
    Ok(())
}

/// The last tile block that arrives sums the parts of all of them. `late`: block 3 stores after its
/// arrival.
fn arrivals(parts: ArrayMut<i32, 2>, count: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>, tile: usize, late: bool) {
    let own = || parts.store((bid(0), 0), ones([1, tile]));
    let is_late = bid(0).eq(3);
    if late {
        if_then(!is_late, own)
    } else {
        own()
    }
    let before = count.entry(0).atomic_add_with(1, AtomicOptions::new());
    if late {
        if_then(is_late, own);
    }
    if_then(before.eq(parts.num_tiles(0, [1, tile]) - 1), || {
        let sum = crate::fold(..parts.num_tiles(0, [1, tile]), crate::zeros([tile]), |sum, i| {
            sum + parts.load((i, 0), [1, tile]).reshape([tile])
        });
        y.store(0, sum);
    });
}

#[test]
fn arrival_counters_and_large_arrays() -> Result<()> {
    for device in devices() {
        // The second size is sampled.
        for (blocks, tile) in [(9, 16), (40, 1024)] {
            for late in [false, true] {
                let (mut parts, mut count) = (device.zeros([blocks, tile])?, device.zeros([1])?);
                let mut y = device.zeros([tile])?;
                let args = (&mut parts, &mut count, &mut y, Constant(tile), Constant(late));
                let result = recorded(device, arrivals, blocks, args);
                if late {
                    let text = result.expect_err("a store behind the arrival").to_string();
                    assert!(text.contains("a race: this ") && text.contains("tile block (3, 0, 0)"), "{text}");
                } else {
                    result?;
                    assert_eq!(y.to_vec()?, vec![blocks as i32; tile]);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn tables_of_arrays_and_addresses() -> Result<()> {
    for device in devices() {
        let mut arrays = [device.zeros([16])?, device.zeros([16])?, device.zeros([16])?];
        let mut table = crate::ArrayTable::new_mut(&mut arrays)?;
        let own = |table: crate::ArraysMut<i32, 1>| table.get(bid(0)).store(0, ones([16]));
        recorded(device, own, 3, (&mut table,))?;
        let line = line!() + 1;
        let shared = |table: crate::ArraysMut<i32, 1>| table.get(bid(0) / 2).store(0, ones([16]));
        let text = recorded(device, shared, 4, (&mut table,)).expect_err("a race").to_string();
        let place = format!("{}:{line}:", file!());
        assert!(text.starts_with(&place) && text.contains(&format!("at {place}")), "{text}");
        assert!(text.contains("element 0 of an array of 16, which tile block ("), "{text}");
        // Addresses of elements of another argument.
        let mut x = device.zeros::<i32, 1>([64])?;
        let address = device.array(&[x.address() as i64], [1])?;
        let line = line!() + 5;
        let aliased = |x: ArrayMut<i32, 1>, address: Array<i64, 1>| {
            x.store(bid(0), ones([16]));
            if_then(bid(0).eq(1), || {
                // SAFETY: the element exists, but tile block 0 writes it.
                unsafe { crate::Ptr::<i32>::from_addr(address.load_scalar(0)).offset(3).store(5) }
            });
        };
        let text = recorded(device, aliased, 4, (&mut x, &address)).expect_err("a race").to_string();
        assert!(
            text.contains("element 3 of an array of 64") && text.contains(&format!("{}:{line}:", file!())),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn records_of_locks_and_of_written_elements_are_assembled() -> Result<()> {
    let x = ArraySpec::<i32, 1>::new([1024]).mutable();
    let [races, unwritten] = ["races", "unwritten"].map(|name| name.parse::<Checks>().expect("a check"));
    for target in [Target::SM_80, Target::SM_90A] {
        let lock = || inspect(locked, (x, x, x, Constant(Outside::Nothing))).target(target);
        let (plain, text) = (lock().ptx()?, lock().checks(races).ptx()?);
        // Each event has a number of the counter: one atomic with a result.
        let numbers = |text: &str| text.matches(".add.u64").count() + text.matches(".add.s64").count();
        assert!(numbers(&plain) == 0 && numbers(&text) >= 5, "{text}");
        assemble(target, &text);
        let text = lock().checks(unwritten).ptx()?;
        assert!(text.contains("st.global.b8") || text.contains("st.global.u8"), "{text}");
        assemble(target, &text);
    }
    Ok(())
}
