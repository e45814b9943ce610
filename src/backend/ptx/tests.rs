//! Small kernels, constructed by hand, through the whole back end, and through ptxas if installed.

mod atomics;
mod aux_loads;
pub(crate) mod clusters;
mod cp_async;
pub mod data_partition;
mod deferred_load;
mod epilogue_smem_reuse;
mod mma;
pub(crate) mod mma_overlap;
pub mod optimizations;
mod privatized;
pub(crate) mod schedules;
mod strip_mine;
pub mod sync;
mod tma_store;
mod unroll;

use std::path::PathBuf;
use std::process::Command;

use super::remarks::DataPath;
use super::{CompileOptions, Compiled, compile};
use crate::dtype::DType;
use crate::ir::{
    Attr, Builder, CmpPred, Flag, Literal, MemOrder, Module, Opcode, Overflow, Padding, Predicate, Rounding, Sign,
    Type, TypeId, Value,
};
use crate::target::Target;

/// A kernel under construction.
pub struct Kernel {
    pub b: Builder,
}

/// An array parameter: contiguous, row-major, 16-byte aligned.
pub struct ArrayParam {
    pub view: Value,
}

impl Kernel {
    pub fn new(name: &str) -> Kernel {
        let mut b = Builder::new();
        b.begin_entry(name, &[]);
        Kernel { b }
    }

    fn param(&mut self, ty: Type) -> Value {
        let id = self.b.module.intern(ty);
        let body = self.b.open_blocks()[0];
        self.b.module.add_block_arg(body, id)
    }

    fn assume(&mut self, value: Value, divisor: u64) -> Value {
        let ty = self.b.module.ty_id(value);
        let predicate = Predicate::DivBy { divisor, every: None, along: None };
        self.b.simple(Opcode::Assume, &[value], vec![Attr::Predicate(predicate)], ty)
    }

    /// Adds an array. With `aligned`, base, extents and all strides but the last are divisible by
    /// 16.
    pub fn array(&mut self, elem: DType, rank: usize, aligned: bool) -> ArrayParam {
        let mut base = self.param(Type::ptr(elem));
        let mut dims: Vec<Value> = (0..2 * rank).map(|_| self.param(Type::scalar(DType::I32))).collect();
        if aligned {
            base = self.assume(base, 16);
            for dim in &mut dims {
                *dim = self.assume(*dim, 16);
            }
        }
        let mut strides = vec![None; rank];
        strides[rank - 1] = Some(1);
        let ty = Type::TensorView { elem, shape: vec![None; rank], strides, ptr_attr: None };
        let ty = self.b.module.intern(ty);
        let (extents, strides) = dims.split_at(rank);
        let id = self.b.op(Opcode::MakeTensorView, &[&[base], extents, &strides[..rank - 1]], vec![], vec![], &[ty]);
        ArrayParam { view: self.b.module.op(id).results[0] }
    }

    pub fn partition(&mut self, array: &ArrayParam, tile: &[i32], dim_map: &[i32]) -> Value {
        self.partition_with(array, tile, dim_map, Some(Padding::Zero))
    }

    pub fn partition_with(
        &mut self,
        array: &ArrayParam,
        tile: &[i32],
        dim_map: &[i32],
        padding: Option<Padding>,
    ) -> Value {
        let view = self.b.module.ty_id(array.view);
        let ty = Type::PartitionView { tile: tile.to_vec(), view, dim_map: dim_map.to_vec(), padding };
        let ty = self.b.module.intern(ty);
        self.b.simple(Opcode::MakePartitionView, &[array.view], vec![], ty)
    }

    pub fn load(&mut self, view: Value, index: &[Value]) -> Value {
        let Type::PartitionView { tile, view: tensor, .. } = self.b.module.ty(view).clone() else { panic!() };
        let Type::TensorView { elem, .. } = *self.b.module.type_of(tensor) else { panic!() };
        let shape: Vec<i64> = tile.iter().map(|&e| i64::from(e)).collect();
        let ty = self.tile(elem, &shape);
        let token = self.b.module.intern(Type::Token);
        let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
        let id = self.b.op(Opcode::LoadView, &[&[view], index, &[]], attrs, vec![], &[ty, token]);
        self.b.module.op(id).results[0]
    }

    pub fn store(&mut self, tile: Value, view: Value, index: &[Value]) {
        let token = self.b.module.intern(Type::Token);
        let attrs = vec![Attr::MemOrder(MemOrder::Weak)];
        self.b.op(Opcode::StoreView, &[&[tile], &[view], index, &[]], attrs, vec![], &[token]);
    }

    pub fn tile(&mut self, elem: DType, shape: &[i64]) -> TypeId {
        self.b.module.intern(Type::tile(elem, shape))
    }

    pub fn bids(&mut self) -> Vec<Value> {
        let ty = self.tile(DType::I32, &[]);
        let id = self.b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[ty, ty, ty]);
        self.b.module.op(id).results.clone()
    }

    pub fn op(&mut self, code: Opcode, operands: &[Value]) -> Value {
        let ty = self.b.module.ty_id(operands[0]);
        let has = |name: &str| code.spec().attrs.iter().any(|attr| attr.name == name);
        let mode = if matches!(code, Opcode::Exp | Opcode::Tanh) { Rounding::Full } else { Rounding::NearestEven };
        let mut attrs = if has("rounding_mode") { vec![Attr::Rounding(mode)] } else { vec![] };
        attrs.extend(has("overflow").then_some(Attr::Overflow(Overflow::None)));
        self.b.simple(code, operands, attrs, ty)
    }

    pub fn shaped(&mut self, code: Opcode, value: Value, shape: &[i64], attrs: Vec<Attr>) -> Value {
        let elem = self.b.module.dtype(value);
        let ty = self.tile(elem, shape);
        self.b.simple(code, &[value], attrs, ty)
    }

    pub fn index(&mut self, value: i64) -> Value {
        self.b.splat(DType::I32, value as u64, &[])
    }

    pub fn reduce(&mut self, code: Opcode, value: Value, axis: u32, identity: u64) -> Value {
        let elem = self.b.module.dtype(value);
        let scalar = self.tile(elem, &[]);
        let body = self.b.begin_block(&[scalar, scalar]);
        let args = self.b.module.block(body).args.clone();
        let result = self.op(code, &args);
        self.b.op(Opcode::Yield, &[&[result]], vec![], vec![], &[]);
        self.b.end_block();
        let mut shape = self.b.module.shape(value).to_vec();
        shape.remove(axis as usize);
        let ty = self.tile(elem, &shape);
        let attrs = vec![Attr::Dim(axis), Attr::Identities(vec![Literal { dtype: elem, bits: identity }])];
        let id = self.b.op(Opcode::Reduce, &[&[value]], attrs, vec![body], &[ty]);
        self.b.module.op(id).results[0]
    }

    pub fn finish(mut self) -> Module {
        self.b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        self.b.module
    }
}

fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("CUTLET_PTXAS").map(PathBuf::from);
    let local = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/bin/ptxas"));
    named.or(local.exists().then_some(local))
}

/// Assembles for the target of the kernel, and returns the report.
pub fn assemble(compiled: &Compiled, target: Target) -> Option<String> {
    let Some(ptxas) = ptxas() else {
        eprintln!("skipped: no ptxas (set CUTLET_PTXAS, or run scripts/tools)");
        return None;
    };
    let folder =
        std::env::temp_dir().join(format!("cutlet-ptx-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{}.ptx", compiled.entry));
    std::fs::write(&file, &compiled.text).unwrap();
    let output = Command::new(ptxas)
        .args(["-v", &format!("-arch={target}"), "-o", "/dev/null"])
        .arg(&file)
        .output()
        .expect("ptxas runs");
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{report}\n{}", compiled.text);
    assert!(report.contains(" 0 bytes spill stores"), "{report}");
    assert!(!report.contains("C75"), "wgmma is serialised: {report}");
    Some(report)
}

fn check(module: &Module) -> Vec<Compiled> {
    check_with(module, &CompileOptions::default())
}

fn check_with(module: &Module, options: &CompileOptions) -> Vec<Compiled> {
    [Target::SM_80, Target::SM_90A]
        .into_iter()
        .map(|target| {
            let compiled = compile(module, target, options).unwrap();
            if let Some(report) = assemble(&compiled, target) {
                eprintln!("{report}");
            }
            compiled
        })
        .collect()
}

fn vadd(aligned: bool) -> Module {
    let mut k = Kernel::new("vadd");
    let arrays: Vec<ArrayParam> = (0..3).map(|_| k.array(DType::F32, 1, aligned)).collect();
    let i = k.bids()[0];
    let views: Vec<Value> = arrays.iter().map(|a| k.partition(a, &[1024], &[0])).collect();
    let (a, b) = (k.load(views[0], &[i]), k.load(views[1], &[i]));
    let sum = k.op(Opcode::AddF, &[a, b]);
    k.store(sum, views[2], &[i]);
    k.finish()
}

#[test]
fn vadd_uses_wide_accesses() {
    for compiled in check(&vadd(true)) {
        assert_eq!(compiled.text.matches("ld.global").count(), compiled.text.matches(".v4.").count() * 2 / 3);
        let paths: Vec<(bool, DataPath)> =
            compiled.remarks.accesses().map(|access| (access.writes, access.path)).collect();
        let path = DataPath::Direct { accesses: 1, bytes: 16, masked: false };
        assert_eq!(paths, [(false, path), (false, path), (true, path)], "{}", compiled.remarks);
    }
}

#[test]
fn unaligned_vadd_is_legal() {
    for compiled in check(&vadd(false)) {
        assert!(!compiled.text.contains(".v4."));
    }
}

/// A truncated wider index, or a narrower one without its sign, would be the index of another tile.
#[test]
fn indices_of_other_widths_keep_their_values() {
    for (dtype, instruction) in [(DType::I64, "min.u64"), (DType::I16, "bfe.s32"), (DType::I8, "bfe.s32")] {
        let mut k = Kernel::new("copy");
        let (x, y) = (k.array(DType::F32, 1, true), k.array(DType::F32, 1, true));
        let index = k.param(Type::scalar(dtype));
        let (from, to) = (k.partition(&x, &[128], &[0]), k.partition(&y, &[128], &[0]));
        let tile = k.load(from, &[index]);
        k.store(tile, to, &[index]);
        for compiled in check(&k.finish()) {
            assert!(compiled.text.contains(instruction), "{dtype}: {}", compiled.text);
        }
    }
}

#[test]
fn transposition_uses_shared_memory() {
    let mut k = Kernel::new("transpose");
    let (a, c) = (k.array(DType::F32, 2, true), k.array(DType::F32, 2, true));
    let ids = k.bids();
    let (va, vc) = (k.partition(&a, &[64, 64], &[0, 1]), k.partition(&c, &[64, 64], &[0, 1]));
    let tile = k.load(va, &[ids[0], ids[1]]);
    let turned = k.shaped(Opcode::Permute, tile, &[64, 64], vec![Attr::Permutation(vec![1, 0])]);
    k.store(turned, vc, &[ids[1], ids[0]]);
    for compiled in check(&k.finish()) {
        assert_eq!(compiled.text.matches("bar.sync").count() + compiled.text.matches("barrier").count(), 1);
        // The tile and its padding against bank conflicts, in whole kilobytes.
        let bytes = compiled.shared_bytes;
        assert!((64 * 64 * 4..=64 * 64 * 4 + 1024).contains(&bytes), "{bytes}");
    }
}

/// Softmax of rows of 4096 elements.
fn softmax() -> Module {
    let mut k = Kernel::new("softmax");
    let (x, y) = (k.array(DType::F32, 2, true), k.array(DType::F32, 2, true));
    let row = k.bids()[0];
    let zero = k.index(0);
    let (vx, vy) = (k.partition(&x, &[1, 4096], &[0, 1]), k.partition(&y, &[1, 4096], &[0, 1]));
    let x = k.load(vx, &[row, zero]);
    let minus_inf = u64::from(f32::NEG_INFINITY.to_bits());
    let max = k.reduce(Opcode::MaxF, x, 1, minus_inf);
    let max = k.shaped(Opcode::Reshape, max, &[1, 1], vec![]);
    let max = k.shaped(Opcode::Broadcast, max, &[1, 4096], vec![]);
    let shifted = k.op(Opcode::SubF, &[x, max]);
    let e = k.op(Opcode::Exp, &[shifted]);
    let sum = k.reduce(Opcode::AddF, e, 1, 0);
    let sum = k.shaped(Opcode::Reshape, sum, &[1, 1], vec![]);
    let sum = k.shaped(Opcode::Broadcast, sum, &[1, 4096], vec![]);
    let out = k.op(Opcode::DivF, &[e, sum]);
    k.store(out, vy, &[row, zero]);
    k.finish()
}

#[test]
fn softmax_reduces_across_warps() {
    // Eight CTAs of 256 threads transfer 256 KiB, four of 512 threads 128 KiB.
    for compiled in check(&softmax()) {
        assert_eq!(compiled.threads, 256);
    }
}

#[test]
fn a_loop_carries_its_state_in_registers() {
    let mut k = Kernel::new("running_sum");
    let (x, y) = (k.array(DType::F32, 2, true), k.array(DType::F32, 2, true));
    let row = k.bids()[0];
    let (vx, vy) = (k.partition(&x, &[16, 64], &[0, 1]), k.partition(&y, &[16, 64], &[0, 1]));
    let (zero, one, ten) = (k.index(0), k.index(1), k.index(10));
    let start = k.b.splat(DType::F32, 0, &[16, 64]);
    let int = k.tile(DType::I32, &[]);
    let state = k.tile(DType::F32, &[16, 64]);
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let tile = k.load(vx, &[row, args[0]]);
    let sum = k.op(Opcode::AddF, &[args[1], tile]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[ten], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, vy, &[row, zero]);
    for compiled in check(&k.finish()) {
        assert!(!compiled.text.contains("barrier.cta.sync"));
    }
}

#[test]
fn large_tiles_are_strip_mined() {
    let mut k = Kernel::new("large");
    let (x, y) = (k.array(DType::F32, 1, true), k.array(DType::F32, 1, true));
    let i = k.bids()[0];
    let (vx, vy) = (k.partition(&x, &[262144], &[0]), k.partition(&y, &[262144], &[0]));
    let tile = k.load(vx, &[i]);
    let mut value = tile;
    for _ in 0..4 {
        value = k.op(Opcode::MulF, &[value, tile]);
    }
    k.store(value, vy, &[i]);
    for compiled in check(&k.finish()) {
        let first_store = compiled.text.find("st.global").unwrap();
        assert!(compiled.text[first_store..].contains("ld.global"), "loads of later pieces follow the first store");
    }
}

pub fn matmul(elem: DType, acc: DType, tile: [i64; 3]) -> Module {
    matmul_into(elem, acc, acc, tile)
}

/// Returns an MMA of tiles, 64 along k. If the result has a type of its own, the trip count is a
/// parameter.
fn matmul_into(elem: DType, acc: DType, out: DType, tile: [i64; 3]) -> Module {
    matmul_with(elem, acc, out, tile, &|_, sums| sums)
}

/// Returns the same with an epilogue.
fn matmul_with(
    elem: DType,
    acc: DType,
    out: DType,
    tile: [i64; 3],
    work: &dyn Fn(&mut Kernel, Value) -> Value,
) -> Module {
    let [m, n, k] = tile;
    let mut kernel = Kernel::new("matmul");
    let arrays = [kernel.array(elem, 2, true), kernel.array(elem, 2, true), kernel.array(out, 2, true)];
    let ids = kernel.bids();
    let a = kernel.partition(&arrays[0], &[m as i32, k as i32], &[0, 1]);
    let b = kernel.partition(&arrays[1], &[k as i32, n as i32], &[0, 1]);
    let c = kernel.partition(&arrays[2], &[m as i32, n as i32], &[0, 1]);
    let (zero, one) = (kernel.index(0), kernel.index(1));
    let count = if out == acc { kernel.index(64) } else { ids[2] };
    let start = kernel.b.splat(acc, 0, &[m, n]);
    let (int, state) = (kernel.tile(DType::I32, &[]), kernel.tile(acc, &[m, n]));
    let body = kernel.b.begin_block(&[int, state]);
    let args = kernel.b.module.block(body).args.clone();
    let (left, right) = (kernel.load(a, &[ids[0], args[0]]), kernel.load(b, &[args[0], ids[1]]));
    let sum = kernel.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], state);
    kernel.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    kernel.b.end_block();
    let id = kernel.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let mut result = kernel.b.module.op(id).results[0];
    result = work(&mut kernel, result);
    if out != acc {
        let ty = kernel.tile(out, &[m, n]);
        result = kernel.b.simple(Opcode::FToF, &[result], vec![Attr::Rounding(Rounding::NearestEven)], ty);
    }
    kernel.store(result, c, &[ids[0], ids[1]]);
    kernel.finish()
}

#[test]
fn mmas_use_tensor_cores_and_do_not_spill() {
    for (elem, acc, tile) in [
        (DType::F16, DType::F32, [128, 128, 64]),
        (DType::BF16, DType::F32, [64, 64, 32]),
        (DType::TF32, DType::F32, [128, 128, 32]),
        (DType::F64, DType::F64, [64, 64, 16]),
    ] {
        for compiled in check(&matmul(elem, acc, tile)) {
            let wgmma = compiled.text.contains(".target sm_90a") && elem != DType::F64;
            assert!(compiled.text.contains(if wgmma { "wgmma.mma_async" } else { "mma.sync" }));
        }
    }
    check(&matmul(DType::F32, DType::F32, [64, 64, 32]));
}

#[test]
fn remarks_name_the_reason_against_wgmma() {
    let rejection = |module: Module, num_warps| {
        let options = CompileOptions { num_warps, ..CompileOptions::default() };
        let compiled = compile(&module, Target::SM_90A, &options).unwrap();
        let product = compiled.remarks.products().next().unwrap();
        let text = compiled.remarks.to_string();
        assert_eq!(product.instruction.starts_with("wgmma"), product.wgmma_rejection.is_none(), "{text}");
        assert_eq!(text.contains("; not wgmma: "), product.wgmma_rejection.is_some(), "{text}");
        product.wgmma_rejection
    };
    let product = |elem, tile| matmul(elem, DType::F32, tile);
    assert_eq!(rejection(product(DType::F16, [64, 64, 64]), None), None);
    let reason = rejection(product(DType::F16, [32, 64, 64]), Some(4)).unwrap();
    assert!(reason.contains("64 rows"), "{reason}");
    let reason = rejection(product(DType::F16, [64, 64, 64]), Some(2)).unwrap();
    assert!(reason.contains("four warps"), "{reason}");
    let reason = rejection(product(DType::F16, [64, 64, 8]), Some(4)).unwrap();
    assert!(reason.contains("32 bytes"), "{reason}");
    // Other targets have no such instruction.
    let compiled = compile(&product(DType::F16, [32, 64, 64]), Target::SM_80, &CompileOptions::default()).unwrap();
    assert_eq!(compiled.remarks.products().next().unwrap().wgmma_rejection, None);
}

#[test]
fn mma_operands_are_copied_by_cp_async() {
    let options = CompileOptions { tma: false, ..CompileOptions::default() };
    for compiled in check_with(&matmul(DType::F16, DType::F32, [128, 128, 64]), &options) {
        assert!(compiled.text.contains("cp.async"));
        assert!(!compiled.text.contains("ld.global"));
        let body = &compiled.text[compiled.text.rfind("cp.async.wait_group 1").unwrap()..];
        assert_eq!(
            body[..body.find("mma_async").or(body.find("mma.sync")).unwrap()].matches("barrier.cta").count(),
            1,
            "one barrier an iteration"
        );
    }
}

#[test]
fn a_producer_loads_mma_operands() {
    for (elem, tile) in [(DType::F16, [128, 128, 64]), (DType::BF16, [256, 64, 64]), (DType::F16, [64, 64, 32])] {
        let compiled = check(&matmul(elem, DType::F32, tile)).pop().unwrap();
        let consumers = if tile[0] * tile[1] >= 128 * 128 { 256 } else { 128 };
        assert!(compiled.remarks.accesses().take(2).all(|access| matches!(access.path, DataPath::TmaPipelined { .. })));
        let product = compiled.remarks.products().next().unwrap();
        assert!(product.instruction.contains("wgmma.mma_async.sync.aligned.m64n"), "{}", compiled.remarks);
        assert_eq!(compiled.threads, consumers + if consumers == 256 { 128 } else { 32 });
        assert!(compiled.text.contains("cp.async.bulk.tensor.2d"));
        assert_eq!(compiled.text.matches("setmaxnreg").count(), if consumers == 256 { 2 } else { 0 });
        let end = compiled.text.find("wgmma.wait_group.sync.aligned 0;").unwrap();
        let body = &compiled.text[compiled.text.find("try_wait").unwrap()..end];
        assert!(body.contains("wgmma.mma_async"));
        assert_eq!(body.matches("wgmma.wait_group").count(), 1, "{body}");
        assert!(body.contains("wgmma.wait_group.sync.aligned 1;"), "the product of an iteration runs on in the next");
        assert!(!body.contains("barrier.cta"), "consumers meet the producer only");
        let stages = body.matches("mbarrier.arrive").count();
        assert_eq!(stages, 1, "each iteration gives one stage back");
    }
}

#[test]
fn loops_without_mmas_have_multistage_copies() {
    let mut k = Kernel::new("sums");
    let (input, output) = (k.array(DType::F32, 2, true), k.array(DType::F32, 2, true));
    let ids = k.bids();
    let x = k.partition(&input, &[1, 1024], &[0, 1]);
    let y = k.partition(&output, &[1, 1024], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[1, 1024]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[1, 1024]));
    let body = k.b.begin_block(&[int, state]);
    let args = k.b.module.block(body).args.clone();
    let row = k.load(x, &[args[0], ids[0]]);
    let sum = k.op(Opcode::AddF, &[args[1], row]);
    k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
    let result = k.b.module.op(id).results[0];
    k.store(result, y, &[zero, ids[0]]);
    for compiled in check(&k.finish()) {
        let text = compiled.text;
        assert!(text.contains("cp.async.cg") && !text.contains("ld.global"), "{text}");
        assert!(text.contains("cp.async.wait_group 2;"), "four stages: {text}");
        assert!(!text.contains("barrier"), "every thread reads what it copied: {text}");
    }
}

#[test]
fn accumulators_are_stored_by_tma() {
    for (out, tile) in [
        (DType::F16, [128, 128, 64]),
        (DType::BF16, [128, 256, 64]),
        (DType::F16, [64, 64, 32]),
        (DType::F32, [128, 256, 64]),
        (DType::F32, [128, 64, 32]),
    ] {
        let compiled = check(&matmul_into(DType::F16, DType::F32, out, tile)).pop().unwrap();
        let boxes = compiled.text.matches("global.shared::cta.bulk_group").count() as i64;
        let warps = if tile[0] * tile[1] >= 128 * 128 { 8 } else { 4 };
        let panels = tile[1] * i64::from(out.storage_bits()) / 8 / 128;
        assert_eq!(boxes, panels * tile[0] / (16 * warps), "rows of 128 bytes, 16 rows a warp");
        let matrices = compiled.text.matches("stmatrix.sync.aligned.m8n8.x4.shared.b16").count() as i64;
        let each = if out == DType::F32 { 0 } else { 8 * 32 * warps };
        assert_eq!(matrices * each, if each == 0 { 0 } else { tile[0] * tile[1] });
        let last = compiled.text.rfind("bulk_group").unwrap();
        assert!(compiled.text[last..].contains("wait_group.read 0"), "shared memory outlives what reads it");
        assert!(!compiled.text.contains("st.global"));
        assert!(!compiled.text.contains("barrier.cta.sync.aligned 1,"), "no warp waits for another one");
    }
}

#[test]
fn an_array_that_is_read_is_not_stored_by_tma() {
    let mut k = Kernel::new("update");
    let arrays = [k.array(DType::F16, 2, true), k.array(DType::F32, 2, true)];
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[64, 64], &[0, 1]);
    let c = k.partition(&arrays[1], &[64, 64], &[0, 1]);
    let (left, right) = (k.load(a, &[ids[0], ids[1]]), k.load(a, &[ids[1], ids[0]]));
    let (state, start) = (k.tile(DType::F32, &[64, 64]), k.load(c, &[ids[0], ids[1]]));
    let product = k.b.simple(Opcode::MmaF, &[left, right, start], vec![], state);
    k.store(product, c, &[ids[0], ids[1]]);
    let compiled = check(&k.finish()).pop().unwrap();
    assert!(!compiled.text.contains("bulk_group") && compiled.text.contains("st.global"));
}
