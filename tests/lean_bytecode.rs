//! Numbers of ops of plain kernels in Tile IR, compared with cuTile Python's bytecode for the same
//! kernels (`tests/data/golden`).

use std::collections::BTreeMap;
use std::path::Path;

use cutlet as ct;
use cutlet::aot::Format;
use cutlet::backend::tileir::{Version, read};
use cutlet::ir::Module;
use cutlet::prelude::*;
use cutlet::{ArraySpec, Target, bf16, f16, tf32};

/// Bytecode of one kernel by this crate.
fn bytecode<K, A, P>(kernel: K, args: A) -> Module
where
    K: cutlet::kernel::Kernel<P>,
    A: cutlet::kernel::KernelArgs<P>,
{
    let target: Target = "sm_100".parse().expect("a target");
    let file = ct::export(kernel, args, target, Format::TileIr(Some(Version::V13_3))).expect("a kernel");
    read(&file.bytes).expect("bytecode of this crate")
}

/// Number of ops of each kind.
fn counts(module: &Module) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    module.walk(module.entries[0].body, &mut |id| {
        *counts.entry(module.op(id).code.spec().name.to_owned()).or_default() += 1
    });
    counts
}

/// Checks that no kind of op occurs more often than in a golden file. Ops in `instead` may: each
/// replaces another one.
fn is_as_lean(golden: &str, ours: &Module, instead: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/golden/{golden}_13.3.tilebc"));
    let theirs = read(&std::fs::read(path).expect("a golden file")).expect("bytecode");
    let (ours, theirs) = (counts(ours), counts(&theirs));
    let more: Vec<String> = ours
        .iter()
        .filter(|(name, count)| !instead.contains(&name.as_str()) && **count > theirs.get(*name).copied().unwrap_or(0))
        .map(|(name, count)| format!("{count} {name} instead of {}", theirs.get(name).copied().unwrap_or(0)))
        .collect();
    let sum = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
    println!("{golden}: {} ops, {} of cuTile Python", sum(&ours), sum(&theirs));
    assert!(more.is_empty() && sum(&ours) <= sum(&theirs), "{golden}: {more:?}\n{ours:?}\n{theirs:?}");
}

#[test]
fn elementwise_and_moved() {
    fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        let p = ct::bid(0);
        c.store(p, a.load(p, [1024]) + b.load(p, [1024]));
    }
    let x = ArraySpec::<f32, 1>::new([4096]);
    is_as_lean("vadd", &bytecode(vadd, (x, x, x.mutable())), &[]);

    fn transpose(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        c.store((j, i), a.load((i, j), [16, 32]).transpose());
    }
    let x = ArraySpec::<f32, 2>::new([256, 256]);
    is_as_lean("transpose2d", &bytecode(transpose, (x, x.mutable())), &[]);
}

#[test]
fn rows() {
    fn softmax(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let p = ct::bid(0);
        let x = a.load_with((p, 0), [4, 1024], ct::LoadOptions::new().padding(Padding::NegInf));
        let e = (x - x.reduce_max(1)).exp();
        c.store((p, 0), e / e.sum(1));
    }
    let x = ArraySpec::<f32, 2>::new([256, 1024]);
    is_as_lean("softmax", &bytecode(softmax, (x, x.mutable())), &[]);

    fn reductions(a: Array<f32, 2>, s: ArrayMut<f32, 1>, most: ArrayMut<f32, 1>, least: ArrayMut<f32, 1>) {
        let p = ct::bid(0);
        let x = a.load((p, 0), [16, 64]);
        s.store(p, x.sum(1).squeeze(1));
        most.store(p, x.reduce_max(1).squeeze(1));
        least.store(p, x.reduce_min(1).squeeze(1) + x.prod(1).squeeze(1));
    }
    let (x, y) = (ArraySpec::<f32, 2>::new([256, 64]), ArraySpec::<f32, 1>::new([256]).mutable());
    is_as_lean("reductions", &bytecode(reductions, (x, y, y, y)), &[]);
}

#[test]
fn products() {
    fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            ct::mma(a.load((i, k), [64, 32]), b.load((k, j), [32, 64]), acc)
        });
        c.store((i, j), acc.cast::<f16>());
    }
    let x = ArraySpec::<f16, 2>::new([1024, 1024]);
    is_as_lean("matmul_f16", &bytecode(matmul, (x, x, x.mutable())), &[]);

    fn of_tf32(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..16, ct::zeros::<f32, 2>([32, 32]), |acc, k| {
            ct::mma(a.load((i, k), [32, 16]).cast::<tf32>(), b.load((k, j), [16, 32]).cast::<tf32>(), acc)
        });
        c.store((i, j), acc);
    }
    let x = ArraySpec::<f32, 2>::new([256, 256]);
    is_as_lean("matmul_tf32", &bytecode(of_tf32, (x, x, x.mutable())), &[]);

    fn batched(a: Array<bf16, 3>, b: Array<bf16, 3>, c: ArrayMut<f32, 3>) {
        let at = (ct::bid(0), 0, 0);
        c.store(at, ct::mma(a.load(at, [2, 32, 16]), b.load(at, [2, 16, 32]), ct::zeros::<f32, 3>([2, 32, 32])));
    }
    let (x, y) = (ArraySpec::<bf16, 3>::new([16, 32, 16]), ArraySpec::<bf16, 3>::new([16, 16, 32]));
    is_as_lean("batched_matmul", &bytecode(batched, (x, y, ArraySpec::<f32, 3>::new([16, 32, 32]).mutable())), &[]);
}

/// Divisors that a launch checks have no case for 0 in the kernel: `select` and `cmpi` do not
/// occur.
#[test]
fn checked_divisors() {
    fn grouped(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
        let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [64, 64]));
        let (index, in_group) = (ct::bid(0), columns * 8);
        let first = index / in_group * 8;
        let height = (rows - first).min(8);
        let (i, j) = (first + index % in_group % height, index % in_group / height);
        let acc = ct::fold(..a.num_tiles(1, [64, 32]), ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            ct::mma(a.load((i, k), [64, 32]), b.load((k, j), [32, 64]), acc)
        });
        c.store((i, j), acc.cast::<f16>());
    }
    let x = ArraySpec::<f16, 2>::new([1024, 1024]);
    let counts = counts(&bytecode(grouped, (x, x, x.mutable())));
    assert_eq!(["select", "cmpi", "if"].map(|name| counts.get(name)), [None; 3], "{counts:?}");
    assert_eq!((counts["divi"], counts["remi"]), (2, 2));
}

#[test]
fn loops() {
    fn for_loop(a: Array<f32, 1>, c: ArrayMut<f32, 1>, k: Scalar<i32>) {
        let start = (ct::zeros::<f32, 1>([32]), ct::scalar(0));
        let (acc, count) =
            ct::fold(ct::range(1, k).step(2), start, |(acc, count), i| (acc + a.load(i, [32]), count + i));
        c.store(0, acc + count.cast::<f32>());
    }
    let x = ArraySpec::<f32, 1>::new([4096]);
    is_as_lean("for_loop", &bytecode(for_loop, (x, x.mutable(), 9)), &[]);
}
