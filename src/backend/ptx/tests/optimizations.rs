//! Switches of the optimizations: each changes code, and the code without an optimization is legal.

use super::schedules::kernels;
use super::*;
use crate::backend::ptx::{Optimization, OptimizationSet};
use crate::ir::Overflow;
use crate::pass;

/// For each optimization the name of a kernel of [`all`] whose code its switch changes on sm_90a.
/// [`Optimization::Persistent`] concerns launches.
pub const CHANGED: &[(Optimization, &str)] = &[
    (Optimization::SinkLoads, "plain loop"),
    (Optimization::HoistFactor, "plain loop"),
    (Optimization::SelectToBranch, "plain loop"),
    (Optimization::RegisterOperands, "plain loop"),
    (Optimization::PlanSearch, "copies with operands"),
    (Optimization::DataPartition, "whole"),
    (Optimization::RematerializeLoads, "large rows"),
    (Optimization::ThreadLocalReduction, "attention"),
    (Optimization::PipelineDependentMma, "attention"),
    (Optimization::PointerContiguity, "gather_scatter_13.4"),
    (Optimization::DeferredLoad, "gather_scatter_view_13.4"),
    (Optimization::StridedReduction, "maxima of columns"),
    (Optimization::ReducedScan, "states"),
    (Optimization::AdjacentOperands, "products that depend, 96"),
    (Optimization::RequestedLayouts, "gather_scatter_view_13.4"),
    (Optimization::WarpSpecialization, "pingpong"),
    (Optimization::FusedBoxes, "products that depend, 96"),
    (Optimization::AuxLoads, "an auxiliary load"),
    (Optimization::ClusterMulticast, "pair"),
    (Optimization::Pingpong, "pingpong"),
    (Optimization::EpilogueSmemReuse, "staged in a stage"),
    (Optimization::TmaStore, "added"),
    (Optimization::WarpStaging, "pingpong"),
    (Optimization::PrivatizedAtomics, "counts"),
    (Optimization::ImpliedMask, "masked counts"),
    (Optimization::StripMine, "vadd 16384"),
    (Optimization::CpAsync, "multistage copies"),
    (Optimization::ThreadPrivateCopies, "multistage copies"),
    (Optimization::Unroll, "unrolled"),
    (Optimization::HoistConversions, "sums of columns"),
    (Optimization::HoistOperands, "hoisted operands"),
    (Optimization::DoubleBuffer, "an operand in two slots"),
    (Optimization::MmaGroups, "products that depend, 96"),
    (Optimization::WideMma, "products that depend, 96"),
    (Optimization::MmaCarry, "pingpong"),
    (Optimization::MmaAcrossBranch, "branch across products"),
    (Optimization::SinkMmaWaits, "attention"),
    (Optimization::MmaOverlap, "attention"),
    (Optimization::TryWait, "attention"),
    (Optimization::MmaOrder, "order barriers"),
    (Optimization::ExpOrder, "attention"),
    (Optimization::HoistInvariants, "pingpong"),
    (Optimization::PrefetchMaps, "added"),
    (Optimization::PrefetchBoxes, "two values"),
    (Optimization::UnalignedLoad, "shifted"),
    (Optimization::VectorAtomics, "atomics_13.4"),
    (Optimization::PackedHalves, "copies with operands"),
    (Optimization::MinMax3, "attention"),
    (Optimization::SharedDivisor, "softmax"),
    (Optimization::MulWide, "both halves"),
    (Optimization::MinBlocks, "vadd 1024"),
];

/// Both halves of products.
fn both_halves() -> Module {
    let mut k = Kernel::new("halves");
    let arrays: Vec<ArrayParam> = (0..3).map(|_| k.array(DType::I32, 1, true)).collect();
    let i = k.bids()[0];
    let [x, low, high] = [0, 1, 2].map(|n| k.partition(&arrays[n], &[1024], &[0]));
    let tile = k.load(x, &[i]);
    // A masked load writes its registers on two paths.
    let ones = k.b.splat(DType::I32, u64::from(u32::MAX), &[1024]);
    let tile = k.op(Opcode::XorI, &[tile, ones]);
    let ty = k.tile(DType::I32, &[1024]);
    let factor = k.b.splat(DType::I32, 0xD251_1F53, &[1024]);
    let products = [
        k.b.simple(Opcode::MulI, &[tile, factor], vec![Attr::Overflow(Overflow::None)], ty),
        k.b.simple(Opcode::MulHiI, &[tile, factor], vec![], ty),
    ];
    for (product, view) in products.into_iter().zip([low, high]) {
        k.store(product, view, &[i]);
    }
    k.finish()
}

/// A copy of a vector by one element.
const SHIFTED: &str = "
entry @shifted(%p: tile<ptr<f32>>, %q: tile<ptr<f32>>, %n: tile<i32>) {
  %token = make_token : token
  %from = assume div_by<16>, %p : tile<ptr<f32>>
  %to = assume div_by<16>, %q : tile<ptr<f32>>
  %count = assume div_by<16>, %n : tile<i32>
  %x = make_tensor_view %from, shape = [%count], strides = [1] : tile<i32> -> tensor_view<?xf32, strides=[1]>
  %y = make_tensor_view %to, shape = [%count], strides = [1] : tile<i32> -> tensor_view<?xf32, strides=[1]>
  %each = make_strided_view %x : strided_view<tile=(1024), traversal_strides=[1], padding_value = zero, tensor_view<?xf32, strides=[1]>>
  %tiles = make_partition_view %y : partition_view<tile=(1024), tensor_view<?xf32, strides=[1]>>
  %i, %j, %k = get_tile_block_id : tile<i32>
  %tile = constant <i32: 1024> : tile<i32>
  %one = constant <i32: 1> : tile<i32>
  %start = muli %i, %tile : tile<i32>
  %before = subi %start, %one : tile<i32>
  %values, %loaded = load_view_tko weak %each[%before] token = %token : strided_view<tile=(1024), traversal_strides=[1], padding_value = zero, tensor_view<?xf32, strides=[1]>>, tile<i32> -> tile<1024xf32>, token
  %stored = store_view_tko weak %values, %tiles[%i] token = %token : tile<1024xf32>, partition_view<tile=(1024), tensor_view<?xf32, strides=[1]>>, tile<i32> -> token
  return
}";

/// Rows, less their sums, that fill the registers.
fn large_rows() -> Module {
    let mut k = Kernel::new("rows");
    let arrays = [(); 2].map(|()| k.array(DType::F32, 1, true));
    let [x, y] = arrays.map(|array| k.partition(&array, &[1 << 16], &[0]));
    let i = k.bids()[0];
    let tile = k.load(x, &[i]);
    let sum = k.reduce(Opcode::AddF, tile, 0, 0);
    let sum = k.shaped(Opcode::Reshape, sum, &[1], vec![]);
    let sums = k.shaped(Opcode::Broadcast, sum, &[1 << 16], vec![]);
    let less = k.op(Opcode::SubF, &[tile, sums]);
    k.store(less, y, &[i]);
    k.finish()
}

/// In a loop, sums of tiles and of a tile from outside in another layout.
fn sums_of_columns() -> Module {
    let mut k = Kernel::new("columns");
    let arrays = [(); 3].map(|()| k.array(DType::F32, 2, true));
    let (rows, columns) = (k.partition(&arrays[0], &[64, 32], &[0, 1]), k.partition(&arrays[1], &[64, 32], &[1, 0]));
    let result = k.partition(&arrays[2], &[64, 32], &[1, 0]);
    let i = k.bids()[0];
    let (zero, one, count) = (k.index(0), k.index(1), k.index(64));
    let outside = k.load(rows, &[i, zero]);
    let int = k.tile(DType::I32, &[]);
    let body = k.b.begin_block(&[int]);
    let at = k.b.module.block(body).args[0];
    let tile = k.load(columns, &[at, i]);
    let sum = k.op(Opcode::AddF, &[tile, outside]);
    k.store(sum, result, &[at, i]);
    k.b.op(Opcode::Continue, &[&[]], vec![], vec![], &[]);
    k.b.end_block();
    k.b.op(Opcode::For, &[&[zero], &[count], &[one], &[]], vec![], vec![body], &[]);
    k.finish()
}

/// A loop with MMAs as a user first writes it: a mask in each iteration, scaled queries, a constant
/// factor of which only the maximum has a use, a residual that is loaded before the loop.
fn plain_loop() -> Module {
    use crate as ct;
    use crate::prelude::*;
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    let kernel = |(q, k, r): Inputs, (y, most): (ArrayMut<f32, 2>, ArrayMut<f32, 1>), scale: Scalar<f32>| {
        let (block, tile) = (ct::bid(0), [128, 64]);
        let residual = r.load((block, 0), tile).cast::<f32>();
        let queries = (q.load((block, 0), tile).cast::<f32>() * scale).cast::<f16>();
        let row = (block * 128 + ct::arange(0..128)).unsqueeze(1);
        let start = (ct::zeros::<f32, 2>([128, 64]), ct::full([128, 1], f32::NEG_INFINITY));
        let (sum, largest) = ct::fold(..k.num_tiles(0, [64, 64]), start, |(sum, largest), j| {
            let keys = k.load((j, 0), [64, 64]);
            let scores = ct::matmul(queries, keys.transpose());
            let largest = largest.max((scores * 0.5).reduce_max(1));
            let key = (j * 64 + ct::arange(0..64)).unsqueeze(0);
            let seen = ct::select(key.le(row), scores, 0.0);
            (ct::mma(seen.cast::<f16>(), keys, sum), largest)
        });
        y.store((block, 0), sum + residual);
        most.store(block, largest.reshape([128]));
    };
    let matrix = ct::ArraySpec::<f16, 2>::new([4096, 64]);
    let result = ct::ArraySpec::<f32, 2>::new([4096, 64]).mutable();
    let most = ct::ArraySpec::<f32, 1>::new([4096]).mutable();
    let text = ct::inspect(kernel, ((matrix, matrix, matrix), (result, most), 1.0)).ir().unwrap();
    Module::parse("plain", &text).unwrap()
}

/// In a loop, maxima and scaled sums of columns.
fn maxima_of_columns() -> Module {
    use crate as ct;
    use crate::prelude::*;
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let start = (ct::full::<f32, 2>([1, 128], -1e30), ct::zeros::<f32, 2>([1, 128]));
        let (most, sum) = ct::fold(..x.num_tiles(0, [32, 128]), start, |(most, sum), j| {
            let x = x.load((j, ct::bid(0)), [32, 128]);
            let above = most.max(x.reduce_max(0));
            (above, sum * (most - above).exp2() + (x - above).exp2().sum(0))
        });
        y.store((0, ct::bid(0)), most + sum);
    };
    let (array, result) = (ct::ArraySpec::<f32, 2>::new([4096, 4096]), ct::ArraySpec::<f32, 2>::new([1, 4096]));
    let text = ct::inspect(kernel, (array, result.mutable())).ir().unwrap();
    Module::parse("maxima", &text).unwrap()
}

/// A recurrence of steps, channels and states whose states are summed.
fn states() -> Module {
    use crate as ct;
    use crate::prelude::*;
    let kernel = |x: Array<f16, 2>, a: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        let rate = a.load((ct::bid(0), 0), [32, 16]).unsqueeze(0);
        ct::fold(..x.num_tiles(0, [16, 32]), (), |(), i| {
            let x = x.load((i, ct::bid(0)), [16, 32]).cast::<f32>().unsqueeze(2);
            let maps = (x * rate, x + rate);
            let (_, all) = ct::scan(maps, 0, (1.0, 0.0), |(a1, b1), (a2, b2)| (a1 * a2, a2 * b1 + b2));
            y.store((i, ct::bid(0)), all.sum(2).reshape([16, 32]));
        });
    };
    let (steps, rates) = (ct::ArraySpec::<f16, 2>::new([4096, 2048]), ct::ArraySpec::<f32, 2>::new([2048, 16]));
    let result = ct::ArraySpec::<f32, 2>::new([4096, 2048]).mutable();
    let text = ct::inspect(kernel, (steps, rates, result)).ir().unwrap();
    Module::parse("states", &text).unwrap()
}

/// Attention whose values are two tiles. Two warp groups have columns of the scores, so that the
/// weights pass through shared memory. The memory for values is that of one stage.
pub fn two_values() -> Module {
    use crate as ct;
    use crate::prelude::*;
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    let kernel = |(q, k, v): Inputs, y: ArrayMut<f32, 2>| {
        let queries = q.load((ct::bid(0), 0), [64, 64]);
        let start = (ct::zeros::<f32, 2>([64, 256]), ct::zeros::<f32, 2>([64, 256]));
        let (first, second) = ct::fold(..k.num_tiles(0, [128, 64]), start, |(first, second), j| {
            let scores = ct::matmul(queries, k.load((j, 0), [128, 64]).transpose());
            let weights = scores.exp2().cast::<f16>();
            // The sums separate the groups of both products, and keep both in their iteration.
            let first = ct::mma(weights, v.load((j, 0), [128, 256]), first * 0.5) + 1.0;
            let second = ct::mma(weights, v.load((j, 1), [128, 256]), second * 0.5) + 1.0;
            (first, second)
        });
        y.store((ct::bid(0), 0), first);
        y.store((ct::bid(0), 1), second);
    };
    let narrow = ct::ArraySpec::<f16, 2>::new([4096, 64]);
    let (wide, result) = (ct::ArraySpec::<f16, 2>::new([4096, 512]), ct::ArraySpec::<f32, 2>::new([4096, 512]));
    let text = ct::inspect(kernel, ((narrow, narrow, wide), result.mutable())).ir().unwrap();
    Module::parse("values", &text).unwrap()
}

/// The kernels of the tests of schedules, and further ones.
pub fn all() -> Vec<(String, Module, CompileOptions)> {
    let mut shifted = Module::parse("shifted", SHIFTED).unwrap_or_else(|error| panic!("{error}"));
    pass::optimize(&mut shifted);
    let more = [
        ("whole", data_partition::whole(192)),
        ("large rows", large_rows()),
        ("masked counts", privatized::masked_counts()),
        ("sums of columns", sums_of_columns()),
        ("plain loop", plain_loop()),
        ("maxima of columns", maxima_of_columns()),
        ("states", states()),
        ("two values", two_values()),
        ("both halves", both_halves()),
        ("softmax", softmax()),
        ("shifted", shifted),
    ];
    let more = more.map(|(name, module)| (name.to_owned(), module, CompileOptions::default()));
    kernels().into_iter().chain(more).collect()
}

fn without(options: &CompileOptions, optimization: Optimization) -> CompileOptions {
    CompileOptions { optimizations: OptimizationSet::ALL.without(optimization), ..*options }
}

#[test]
fn each_switch_changes_the_code_of_a_kernel() {
    let (kernels, mut dead) = (all(), Vec::new());
    for &optimization in Optimization::ALL.iter().filter(|&&one| one != Optimization::Persistent) {
        let known = CHANGED.iter().find(|(known, _)| *known == optimization);
        let (_, name) = known.unwrap_or_else(|| panic!("no kernel for {optimization:?}"));
        let mut named = kernels.iter().filter(|(kernel, ..)| kernel == name).peekable();
        assert!(named.peek().is_some(), "there is no kernel `{name}`");
        let changes = named.any(|(_, module, options)| {
            let text = |options: &CompileOptions| compile(module, Target::SM_90A, options).unwrap().text;
            text(options) != text(&without(options, optimization))
        });
        dead.extend((!changes).then_some((optimization, name)));
    }
    assert!(dead.is_empty(), "these switches do not change these kernels: {dead:?}");
}

#[test]
fn plain_loops_have_persistent_forms() {
    let module = plain_loop();
    let form = crate::pass::persistent(&module).expect("a form");
    let count = |module: &Module| module.block(module.entries[0].body).args.len();
    assert_eq!(count(&form), count(&module) + 3, "the extents of the grid");
    crate::ir::verify(&form).unwrap();
    // It is persistent already, or has no product.
    assert!(crate::pass::persistent(&form).is_none());
    assert!(crate::pass::persistent(&large_rows()).is_none());
}

/// Debug builds verify each schedule. At most one pair in twelve of a kernel and an optimization is
/// compiled.
#[test]
fn code_without_an_optimization_is_legal() {
    let step = crate::util::test_sample::one_in(16).max(12);
    // A kernel that is written for data partitions needs the other parts of these.
    let kernels = all().into_iter().filter(|(name, ..)| name != "data partitions");
    for (number, (name, module, options)) in kernels.enumerate() {
        for &optimization in Optimization::ALL.iter().skip(number % step).step_by(step) {
            let options = without(&options, optimization);
            if let Err(error) = compile(&module, Target::SM_90A, &options) {
                panic!("{name} without {optimization:?}: {error}");
            }
        }
    }
}
