//! MMAs of each type: TMA loads, instruction, and the report of ptxas.

use super::*;
use crate as ct;
use crate::backend::ptx::PlanSearch;
use crate::prelude::*;

/// A tiled matrix multiplication of two arrays.
struct MmaCase {
    /// Element types of the arrays, the operands and the accumulator.
    types: [DType; 3],
    tile: [i64; 3],
    /// The right array is (n, k), so that k is contiguous.
    by_columns: bool,
    /// The arrays are batches of matrices, and tiles have one of them.
    batched: bool,
    fast: bool,
}

impl MmaCase {
    fn new(types: [DType; 3], tile: [i64; 3]) -> MmaCase {
        MmaCase { types, tile, by_columns: false, batched: false, fast: false }
    }

    fn module(&self) -> Module {
        let [elem, input, acc] = self.types;
        let [m, n, k] = self.tile;
        let mut kernel = Kernel::new("product");
        let rank = 2 + usize::from(self.batched);
        let arrays = [elem, elem, acc].map(|elem| kernel.array(elem, rank, true));
        let ids = kernel.bids();
        let mut cut = |array: usize, tile: [i64; 2], turned: bool| {
            let mut shape: Vec<i32> = tile.iter().map(|&extent| extent as i32).collect();
            let mut dims = if turned { vec![1, 0] } else { vec![0, 1] };
            if self.batched {
                shape.insert(0, 1);
                dims = std::iter::once(0).chain(dims.into_iter().map(|dim| dim + 1)).collect();
            }
            kernel.partition(&arrays[array], &shape, &dims)
        };
        let (a, b, c) = (cut(0, [m, k], false), cut(1, [k, n], self.by_columns), cut(2, [m, n], false));
        let (zero, one, count) = (kernel.index(0), kernel.index(1), kernel.index(64));
        let start = kernel.b.splat(acc, 0, &[m, n]);
        let (int, state) = (kernel.tile(DType::I32, &[]), kernel.tile(acc, &[m, n]));
        let body = kernel.b.begin_block(&[int, state]);
        let args = kernel.b.module.block(body).args.clone();
        let mut operand = |view: Value, index: [Value; 2], shape: [i64; 2]| {
            let index: Vec<Value> = if self.batched { [&ids[2..], &index].concat() } else { index.to_vec() };
            let mut tile = kernel.load(view, &index);
            if self.batched {
                tile = kernel.shaped(Opcode::Reshape, tile, &shape, vec![]);
            }
            if elem != input {
                let ty = kernel.tile(input, &shape);
                let rounding = vec![Attr::Rounding(Rounding::NearestEven)];
                tile = kernel.b.simple(Opcode::FToF, &[tile], rounding, ty);
            }
            tile
        };
        let (left, right) = (operand(a, [ids[0], args[0]], [m, k]), operand(b, [args[0], ids[1]], [k, n]));
        let (code, attrs) = match acc {
            DType::I32 => (Opcode::MmaI, vec![Attr::SignLhs(Sign::Signed), Attr::SignRhs(Sign::Signed)]),
            _ if self.fast => (Opcode::MmaF, vec![Attr::Flag(Flag::FastAcc)]),
            _ => (Opcode::MmaF, vec![]),
        };
        let sum = kernel.b.simple(code, &[left, right, args[1]], attrs, state);
        kernel.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
        kernel.b.end_block();
        let id = kernel.b.op(Opcode::For, &[&[zero], &[count], &[one], &[start]], vec![], vec![body], &[state]);
        let mut result = kernel.b.module.op(id).results[0];
        let mut index = vec![ids[0], ids[1]];
        if self.batched {
            result = kernel.shaped(Opcode::Reshape, result, &[1, m, n], vec![]);
            index.insert(0, ids[2]);
        }
        kernel.store(result, c, &index);
        kernel.finish()
    }

    /// Returns the code for sm_80 and sm_90a, assembled without spills.
    fn code(&self) -> [String; 2] {
        let compiled: Vec<String> = check(&self.module()).into_iter().map(|compiled| compiled.text).collect();
        compiled.try_into().expect("two targets")
    }
}

/// Returns kernels with MMAs of several types and sizes.
pub fn modules() -> Vec<Module> {
    let (f16, i8) = ([DType::F16, DType::F16, DType::F32], [DType::I8, DType::I8, DType::I32]);
    let of = |(types, tile)| MmaCase::new(types, tile).module();
    let plain = [
        (f16, [128, 256, 64]),
        (f16, [64, 64, 256]),
        (f16, [16, 8, 16]),
        (TF32, [128, 128, 32]),
        (i8, [128, 128, 128]),
    ];
    // Split along each of m, n and k; operands with gathered bytes; operands that are rounded.
    let half = [[128, 192, 64], [128, 96, 64], [128, 128, 176], [128, 160, 96], [192, 128, 64], [192, 192, 96]];
    let byte = [DType::F8E4M3FN, DType::F8E4M3FN, DType::F32];
    let cut = half.map(|tile| (f16, tile)).into_iter().chain([(byte, [128, 192, 128]), (TF32, [128, 192, 32])]);
    let products = cut.map(|(types, tile)| MmaCase { fast: types == byte, ..MmaCase::new(types, tile) });
    let both = products.flat_map(|product| [true, false].map(|by_columns| MmaCase { by_columns, ..product }.module()));
    plain.into_iter().map(of).chain(both).collect()
}

const TF32: [DType; 3] = [DType::F32, DType::TF32, DType::F32];

/// Checks that operands are loaded by TMA alone, and that no barrier is in the loop.
fn assert_streamed(text: &str) {
    assert!(text.contains("cp.async.bulk.tensor"), "{text}");
    assert!(!text.contains("ld.global"), "{text}");
    assert!(!text.contains("cp.async.cg"), "{text}");
}

#[test]
fn tf32_is_rounded_by_tma() {
    for tile in [[128, 128, 32], [128, 256, 32], [256, 128, 32]] {
        for by_columns in [false, true] {
            let [old, new] = MmaCase { by_columns, ..MmaCase::new(TF32, tile) }.code();
            assert_streamed(&new);
            assert!(new.contains(".f32.tf32.tf32"), "{new}");
            assert!(!new.contains("cvt.rn.tf32"), "{new}");
            // Contiguous along n: through registers, and whole vectors of the accumulator are
            // stored.
            assert_eq!(new.contains("ld.shared"), !by_columns, "{new}");
            if !by_columns {
                assert_eq!(new.matches("st.global").count(), new.matches("st.global.v").count(), "{new}");
                assert!(!new.contains("st.shared"), "{new}");
            }
            assert!(old.contains("cp.async.cg"), "{old}");
            assert!(!old.contains("ld.global"), "rounded before the product: {old}");
        }
    }
}

/// Returns the code for sm_90a, and the number of stages of its pipelines.
fn hinted(tile: [i64; 3], options: CompileOptions) -> (Compiled, Vec<u32>) {
    let module = MmaCase::new([DType::F16, DType::F16, DType::F32], tile).module();
    let new = compile(&module, Target::SM_90A, &options).unwrap();
    assemble(&new, Target::SM_90A);
    let stages = |path: &DataPath| if let DataPath::TmaPipelined { stages, .. } = path { Some(*stages) } else { None };
    let stages = new.remarks.accesses().filter_map(|access| stages(&access.path)).collect();
    (new, stages)
}

#[test]
fn hints_are_met_or_reported() {
    let wish = |occupancy| CompileOptions { occupancy: Some(occupancy), ..CompileOptions::default() };
    for tile in [[128, 256, 64], [256, 128, 64]] {
        let (code, free) = hinted(tile, CompileOptions::default());
        assert!(code.threads > 256 && code.remarks.available_registers == 240, "the producer releases registers");
        for occupancy in [2, 8, 32] {
            let (code, stages) = hinted(tile, wish(occupancy));
            assert_eq!((code.min_blocks, code.remarks.occupancy_limited), (1, Some([occupancy, 1])));
            assert_eq!(stages, free, "one block has all of the shared memory");
            let report = code.remarks.to_string();
            assert!(
                report.contains(&format!(
                    "occupancy: 1, limited by registers and shared memory (requested: {occupancy})"
                ))
            );
        }
    }
    let (code, stages) = hinted([64, 64, 256], wish(3));
    assert_eq!((code.min_blocks, stages, code.remarks.occupancy_limited), (3, vec![1, 1], None));
    let (code, stages) = hinted([64, 64, 256], wish(4));
    assert_eq!((code.min_blocks, stages, code.remarks.occupancy_limited), (3, vec![1, 1], Some([4, 3])));
    let most = CompileOptions { num_warps: Some(32), ..CompileOptions::default() };
    let (code, stages) = hinted([256, 128, 64], most);
    assert_eq!((code.threads, stages), (1024, vec![]), "no room for a producer");
}

#[test]
fn a_loop_without_a_producer_names_the_condition_that_fails() {
    let reason = |target, options: CompileOptions| {
        let module = MmaCase::new([DType::F16, DType::F16, DType::F32], [128, 128, 64]).module();
        compile(&module, target, &options).unwrap().remarks.to_string()
    };
    let plain = CompileOptions::default();
    let said = reason(Target::SM_90A, CompileOptions { tma: false, ..plain });
    assert!(said.contains(": loop: no warp specialization: TMA or warp specialization is disabled"), "{said}");
    let said = reason(Target::SM_90A, CompileOptions { num_warps: Some(32), ..plain });
    let what =
        ": loop: no warp specialization: with a producer, a tile block has 1152 threads, and the maximum is 1024";
    assert!(said.contains(what), "{said}");
    let said = reason(Target::SM_80, plain);
    assert!(said.contains(": loop: no warp specialization: it needs sm_90a"), "{said}");
    let waits = |x: ct::Array<f16, 2>, y: ct::ArrayMut<f32, 2>, first: ct::Scalar<i32>| {
        ct::if_then(first.eq(0), ct::grid_dependency_control_wait);
        let sum = ct::fold(..x.num_tiles(1, [128, 64]), ct::zeros::<f32, 2>([128, 128]), |sum, j| {
            ct::mma(x.load((0, j), [128, 64]), x.load((j, 0), [64, 128]), sum)
        });
        y.store((0, 0), sum);
    };
    let [x, y] = [[4096; 2], [128; 2]];
    let arrays = (ct::ArraySpec::<f16, 2>::new(x), ct::ArraySpec::<f32, 2>::new(y).mutable(), 0i32);
    let module = Module::parse("waits", &ct::inspect(waits, arrays).ir().unwrap()).unwrap();
    let said = compile(&module, Target::SM_90A, &plain).unwrap().remarks.to_string();
    assert!(said.contains("no warp specialization: a branch or loop waits for the preceding kernel"), "{said}");
    // The launch requests one stage, or the loop has a producer: no remark.
    for options in [CompileOptions { num_stages: Some(1), ..plain }, plain] {
        assert!(!reason(Target::SM_90A, options).contains("no warp specialization"));
    }
}

#[test]
fn a_view_that_tma_does_not_support_has_a_remark_with_the_condition() {
    let kernel = |x: ct::Array<f16, 2>, y: ct::ArrayMut<f32, 2>| {
        let sum = ct::fold(..x.num_tiles(1, [128, 64]), ct::zeros::<f32, 2>([128, 128]), |sum, j| {
            ct::mma(x.load((0, j), [128, 64]), x.load((j, 0), [64, 128]), sum)
        });
        y.store((0, 0), sum);
    };
    // Rows of 4097 elements begin at other addresses than multiples of 16 bytes.
    let arrays = (ct::ArraySpec::<f16, 2>::new([4096, 4097]), ct::ArraySpec::<f32, 2>::new([128; 2]).mutable());
    let module = Module::parse("odd", &ct::inspect(kernel, arrays).ir().unwrap()).unwrap();
    let said = compile(&module, Target::SM_90A, &CompileOptions::default()).unwrap().remarks.to_string();
    let what = "TMA does not support this array or view: a stride of the array is no known multiple of 16 bytes";
    assert!(said.contains(what), "{said}");
}

#[test]
fn an_operand_that_the_producer_does_not_load_has_a_remark() {
    let mut k = Kernel::new("grouped");
    let (a, b) = (k.array(DType::F16, 2, true), k.array(DType::F16, 2, true));
    let (c, table) = (k.array(DType::F32, 2, true), k.array(DType::I32, 1, true));
    let ids = k.bids();
    let [va, vb, vc] =
        [(&a, [128, 64]), (&b, [64, 128]), (&c, [128, 128])].map(|(array, tile)| k.partition(array, &tile, &[0, 1]));
    let numbers = k.partition(&table, &[16], &[0]);
    // All threads compute the sum together.
    let numbers = k.load(numbers, &[ids[2]]);
    let group = k.reduce(Opcode::AddI, numbers, 0, 0);
    let (zero, one, many) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[128, 128]);
    let (int, sum) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 128]));
    let body = k.b.begin_block(&[int, sum]);
    let args = k.b.module.block(body).args.clone();
    let (left, right) = (k.load(va, &[ids[0], args[0]]), k.load(vb, &[args[0], group]));
    let next = k.b.simple(Opcode::MmaF, &[left, right, args[1]], vec![], sum);
    k.b.op(Opcode::Continue, &[&[next]], vec![], vec![], &[]);
    k.b.end_block();
    let id = k.b.op(Opcode::For, &[&[zero], &[many], &[one], &[start]], vec![], vec![body], &[sum]);
    let result = k.b.module.op(id).results[0];
    k.store(result, vc, &[ids[0], ids[1]]);
    // By the cost model, copies of both operands by the threads take less time.
    let options = CompileOptions { plan_search: PlanSearch::Off, ..CompileOptions::default() };
    let said = compile(&k.finish(), Target::SM_90A, &options).unwrap().remarks.to_string();
    let what = "loop: operands without the producer: one thread alone cannot compute the index";
    assert!(said.contains(what) && said.contains("TMA, "), "{said}");
    let plain = matmul(DType::F16, DType::F32, [128, 128, 64]);
    let said = compile(&plain, Target::SM_90A, &CompileOptions::default()).unwrap().remarks.to_string();
    assert!(!said.contains("without the producer"), "{said}");
}

#[test]
fn mmas_of_bytes() {
    use DType::*;
    for (types, fast) in [([F8E4M3FN, F8E4M3FN, F32], false), ([F8E5M2, F8E5M2, F32], true), ([I8, I8, I32], false)] {
        for tile in [[128, 128, 128], [128, 256, 128], [256, 128, 128]] {
            for by_columns in [false, true] {
                let [_, new] = MmaCase { by_columns, fast, ..MmaCase::new(types, tile) }.code();
                assert_streamed(&new);
                assert!(new.contains("wgmma.mma_async"), "{new}");
                let apart = types[2] == F32 && !fast;
                assert_eq!(new.contains("add.rn.f32"), apart, "{new}");
            }
        }
    }
}

#[test]
fn batched_operands_are_loaded_by_the_producer() {
    for types in [TF32, [DType::F16, DType::F16, DType::F32]] {
        let [old, new] = MmaCase { batched: true, ..MmaCase::new(types, [128, 128, 32]) }.code();
        assert_streamed(&new);
        assert!(new.contains("cp.async.bulk.tensor.3d"), "{new}");
        assert!(old.contains("cp.async.cg") && !old.contains("ld.global"), "{old}");
    }
}

#[test]
fn operands_that_exceed_shared_memory_are_rejected() {
    let doubles = MmaCase::new([DType::F64, DType::F64, DType::F64], [128, 128, 64]).module();
    compile(&doubles, Target::SM_80, &CompileOptions::default()).unwrap();
    let less = "sm_86".parse().unwrap();
    let error = compile(&doubles, less, &CompileOptions::default()).unwrap_err().to_string();
    assert!(error.contains("131072 bytes of shared memory are needed for operands"), "{error}");
}

#[test]
fn mmas_of_any_extent_are_wgmma() {
    use DType::*;
    const HALF: [DType; 3] = [F16, F16, F32];
    const BYTE: [DType; 3] = [F8E4M3FN, F8E4M3FN, F32];
    const FLOAT: [DType; 3] = [F32, TF32, F32];
    for (types, tile, by_columns, shape, count, boxes) in [
        (HALF, [128, 192, 64], false, "m64n192k16", 4, 4),
        (HALF, [128, 192, 64], true, "m64n192k16", 4, 2),
        (HALF, [128, 96, 64], false, "m64n96k16", 8, 4),
        ([BF16, BF16, F32], [128, 176, 128], true, "m64n176k16", 8, 4),
        (HALF, [64, 80, 64], true, "m64n80k16", 4, 2),
        // Along k, the right operand is copied as a whole, and the left one is split into rows.
        (HALF, [128, 128, 176], false, "m64n128k16", 11, 6),
        (HALF, [128, 160, 96], false, "m64n160k16", 6, 7),
        (HALF, [192, 128, 64], true, "m64n", 8, 2),
        (FLOAT, [128, 192, 32], true, "m64n192k8", 4, 2),
        (BYTE, [128, 192, 128], true, "m64n192k32", 4, 2),
    ] {
        let [_, new] = MmaCase { by_columns, fast: types == BYTE, ..MmaCase::new(types, tile) }.code();
        assert_streamed(&new);
        assert_eq!(new.matches("wgmma.mma_async").count(), count, "{tile:?}: {new}");
        assert_eq!(new.matches(shape).count(), count, "{tile:?}: {new}");
        assert_eq!(new.matches("wgmma.commit_group").count(), 1, "one group: {new}");
        assert_eq!(new.matches("mbarrier.arrive.expect_tx").count(), 1, "all arrive together: {new}");
        assert_eq!(new.matches("mbarrier::complete_tx").count(), boxes, "{tile:?}: {new}");
    }
}

/// Returns sums of MMAs in a loop and after it, in one of two branches.
pub fn sums_in_a_branch() -> Module {
    let mut k = Kernel::new("branch");
    let arrays = [DType::F16, DType::F16, DType::F32].map(|dtype| k.array(dtype, 2, true));
    let ids = k.bids();
    let a = k.partition(&arrays[0], &[128, 64], &[0, 1]);
    let b = k.partition(&arrays[1], &[64, 128], &[0, 1]);
    let c = k.partition(&arrays[2], &[128, 128], &[0, 1]);
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let start = k.b.splat(DType::F32, 0, &[128, 128]);
    let (int, state) = (k.tile(DType::I32, &[]), k.tile(DType::F32, &[128, 128]));
    let result = sync::mma_waits::either(&mut k, [ids[0], count], state, |k, less| {
        if !less {
            return start;
        }
        let multiply = |k: &mut Kernel, at: Value, sums: Value| {
            let (left, right) = (k.load(a, &[ids[0], at]), k.load(b, &[at, ids[1]]));
            k.b.simple(Opcode::MmaF, &[left, right, sums], vec![], state)
        };
        let body = k.b.begin_block(&[int, state]);
        let args = k.b.module.block(body).args.clone();
        let sum = multiply(k, args[0], args[1]);
        k.b.op(Opcode::Continue, &[&[sum]], vec![], vec![], &[]);
        k.b.end_block();
        let id = k.b.op(Opcode::For, &[&[one], &[count], &[one], &[start]], vec![], vec![body], &[state]);
        let behind = k.b.module.op(id).results[0];
        multiply(k, zero, behind)
    });
    k.store(result, c, &[ids[0], ids[1]]);
    k.finish()
}

#[test]
fn accumulators_keep_their_registers_across_loops() {
    let text = check(&sums_in_a_branch()).pop().unwrap().text;
    let moves = text.lines().filter(|line| line.trim().starts_with("mov.f32")).count();
    let starts = text.lines().filter(|line| line.contains("mov.f32") && line.contains(", 0f00000000;")).count();
    // The loop starts with zeros, which the other branch returns, too.
    assert_eq!((moves, starts), (128, 128), "{text}");
}

#[test]
fn thread_dependent_addresses_are_computed_once() {
    // A tile is stored after each loop with MMAs, at addresses that depend on the thread.
    let text = check(&deferred_load::scaled_tiles(128)).pop().unwrap().text;
    let consumers = &text[..text.find("setmaxnreg.dec").unwrap()];
    let stores = &consumers[consumers.rfind("wgmma.wait_group").unwrap()..];
    assert!(stores.contains("stmatrix") && !stores.contains("%tid.x"), "{stores}");
}
