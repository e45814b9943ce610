//! Every operation of the front end on every element type that has it: the recorded ops, and their
//! acceptance by the verifier.

mod traced;

use cutlet as ct;
use cutlet::ir::Opcode;
use cutlet::prelude::*;
use traced::{input, ops, output, trace};

/// Runs a generic function for a list of element types.
macro_rules! for_types {
    ($function:ident: $($ty:ident)+) => { $($function::<$ty>();)+ };
}

fn load<T: Element>(a: Array<T, 2>) -> Tile<T, 2> {
    a.load([ct::bid(0), ct::bid(1)], [8, 16])
}

fn arithmetic<T: Number>() {
    trace(
        |a: Array<T, 2>, out: ArrayMut<T, 2>| {
            let x = load(a);
            let s = x.sum(..).item();
            let two = T::from_f64(2.0);
            let mut y = x + x - s * x;
            y = s + (y * two) / s % x;
            y = (s - two) + (s * s / s % two) + y;
            y = y.floor_div(x).ceil_div(two).trunc_div(s).modulo(x).abs();
            y = y.max(x).min(s).clamp(two, x);
            y = ct::select(x.lt(y), x, y) + x.prod([0, 1]) + x.reduce_max(0) + x.reduce_min(1);
            y = y.map(|v| v * v + two).zip_map(x, |a, b| a - b);
            y = y.reduce(0, two, |acc, v| acc + v) + ct::full([8, 16], two);
            y = y + ct::arange_from(16, two, two).unsqueeze(0) + ct::ones([1, 1]);
            out.store([ct::bid(0), ct::num_blocks(0)], y);
        },
        (input::<T, 2>(), output::<T, 2>()),
    );
}

#[test]
fn arithmetic_of_numbers() {
    for_types!(arithmetic: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);
}

fn float_functions<T: Float>() {
    let module = trace(
        |a: Array<T, 2>, out: ArrayMut<T, 2>| {
            let x = load(a);
            let mut y = x.exp().exp2().log().log2().sqrt().rsqrt().sin().cos().tan().sinh().cosh().tanh();
            y = y.floor().ceil().pow(x).powi(3).atan2(x).fma(x, y);
            y = y.max_nan(x).min_nan(y);
            y = ct::select(y.isnan(), -y, x) + x.reduce_max_nan(0) + x.reduce_min_nan(..);
            for rounding in [Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf] {
                y = y.add_with(x, rounding).sub_with(x, rounding).mul_with(x, rounding).div_with(x, rounding);
                y = y.sqrt_with(rounding).fma_with(x, x, rounding);
            }
            let s = y.sum(..).item();
            y += s.exp().log().powi(2).atan2(s).fma(s, s);
            out.store([0, 0], y);
        },
        (input::<T, 2>(), output::<T, 2>()),
    );
    use Opcode::*;
    let recorded = ops(&module);
    for code in [
        Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Sin, Cos, Tan, Sinh, Cosh, Tanh, Floor, Ceil, PowF, PowI, Atan2, Fma, MaxF,
        MinF, CmpF, Select, NegF, AddF, SubF, MulF, DivF,
    ] {
        assert!(recorded.contains(&code), "{code:?}");
    }
}

#[test]
fn functions_of_floats() {
    for_types!(float_functions: f64 f32 f16 bf16);
}

#[test]
fn f32_only_modes() {
    trace(
        |a: Array<f32, 2>, out: ArrayMut<f32, 2>| {
            let (x, ftz) = (load(a), ct::FloatMode::new().flush_to_zero());
            let mut y = x.add_with(1.0, ftz).sub_with(x, ftz).mul_with(x, ftz).fma_with(x, x, ftz);
            y = y.div_with(x, ftz.rounding(Rounding::Approx)).div_with(2.0, Rounding::Full);
            y = y.sqrt_with(ftz.rounding(Rounding::Approx)).rsqrt_with(ftz).exp2_with(ftz);
            out.store([0, 0], y.max_with(x, ftz).min_with(0.5, ftz).exp_approx().tanh_approx());
        },
        (input::<f32, 2>(), output::<f32, 2>()),
    );
}

fn integer_functions<T: Int>() {
    trace(
        |a: Array<T, 2>, out: ArrayMut<T, 2>| {
            let x = load(a);
            let one = T::from_f64(1.0);
            let s = x.sum(..).item();
            let y = (x & one | x ^ s) << one >> x;
            out.store([0, 0], !y + y.mul_hi(x) + (s & one | s ^ one) + (s << x) + (s >> one));
        },
        (input::<T, 2>(), output::<T, 2>()),
    );
}

#[test]
fn functions_of_integers() {
    for_types!(integer_functions: i8 i16 i32 i64 u8 u16 u32 u64);
}

fn comparisons<T: Comparable>() {
    trace(
        |a: Array<T, 2>, out: ArrayMut<bool, 2>| {
            let (x, zero) = (load(a), T::from_f64(0.0));
            let y = x.eq(x) & x.ne(zero) | x.lt(x) ^ x.le(zero) & x.gt(x) | !x.ge(zero);
            let s = a.load_scalar([0, 0]);
            let t = s.eq(zero) | s.lt(s) & s.select_self();
            out.store([0, 0], y.any(1) & y.all(0) & y & t & true);
        },
        (input::<T, 2>(), output::<bool, 2>()),
    );
}

/// Exercises `select` of scalars.
trait SelectSelf {
    fn select_self(self) -> Scalar<bool>;
}
impl<T: Comparable> SelectSelf for Scalar<T> {
    fn select_self(self) -> Scalar<bool> {
        self.ne(self).select(self, self).eq(self)
    }
}

#[test]
fn comparisons_of_numbers_and_bool() {
    for_types!(comparisons: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool);
}

fn casts_from<T: Element>() {
    macro_rules! cast_to {
        ($x:ident: $($to:ident)+) => { $(let _ = $x.cast::<$to>();)+ };
    }
    trace(
        |a: Array<T, 2>| {
            let x = load(a);
            cast_to!(x: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i8 i16 i32 i64 u8 u16 u32 u64 bool);
        },
        (input::<T, 2>(),),
    );
}

#[test]
fn casts_between_all_types() {
    for_types!(casts_from: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i8 i16 i32 i64 u8 u16 u32 u64 bool);
}

#[test]
fn casts_that_change_nothing_record_nothing() {
    let module = trace(
        |a: Array<i32, 2>, out: ArrayMut<u32, 2>| out.store([0, 0], load(a).cast::<i32>().cast::<u32>().bitcast()),
        (input::<i32, 2>(), output::<u32, 2>()),
    );
    let recorded = ops(&module);
    assert!(!recorded.iter().any(|c| matches!(c, Opcode::Bitcast | Opcode::ExtI | Opcode::TruncI)), "{recorded:?}");
}

#[test]
fn bitcasts() {
    trace(
        |a: Array<f32, 2>, b: Array<f8e4m3fn, 2>, out: ArrayMut<i32, 2>| {
            let bytes = load(b).bitcast::<u8>().bitcast::<f8e5m2>().bitcast::<f8e8m0fnu>().bitcast::<i8>();
            let halves = bytes.cast::<i16>().bitcast::<f16>().bitcast::<bf16>().bitcast::<u16>();
            let doubles = halves.cast::<u64>().bitcast::<f64>().bitcast::<i64>();
            out.store([0, 0], load(a).bitcast::<i32>() + doubles.cast::<i32>());
        },
        (input::<f32, 2>(), input::<f8e4m3fn, 2>(), output::<i32, 2>()),
    );
}

fn movement<T: Element>() {
    let module = trace(
        |a: Array<T, 3>, out: ArrayMut<T, 3>| {
            let x = a.load([0, 1, 2], [2, 4, 8]);
            let y = x.reshape([4, 16]).transpose().permute([1, 0]).unsqueeze(0).squeeze(0);
            let z = y.reshape([2, 4, 8]).swap_axes(0, 2).transpose().permute([2, 0, 1]).swap_axes(1, 2);
            out.store((0, ct::bid(0), 1usize), z.reshape([2, 4, 8]));
            let row = a.permute([2, 0, 1]).load_with([0, 0, 0], [8, 2, 1], ct::LoadOptions::new().order([0, 2, 1]));
            out.store_with([0, 0, 0], row.broadcast_to([8, 2, 4]), ct::StoreOptions::new().order([2, 0, 1]));
            let same = ct::if_else(a.extent(0).lt(a.num_tiles(1, [2, 4, 8])), || x, || ct::zeros([2, 4, 8]));
            out.store([0, 0, 0], ct::fold(0..3, same, |s, _| s));
        },
        (input::<T, 3>(), output::<T, 3>()),
    );
    let expected = {
        use Opcode::*;
        vec![Constant, Constant, Constant, MakePartitionView, LoadView, Reshape, Permute, Permute, Reshape, Reshape]
    };
    assert_eq!(ops(&module)[..expected.len()], expected, "{}", T::NAME);
}

#[test]
fn data_movement_of_all_types() {
    for_types!(movement: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f4e2m1fn i8 i16 i32 i64 u8 u16 u32 u64 bool);
}

#[test]
fn loads_of_ranks_one_to_four() {
    trace(
        |a: Array<f32, 1>, b: Array<f32, 4>, c: ArrayMut<f32, 1>, d: ArrayMut<f32, 4>| {
            let i = ct::bid(0);
            c.store(i + 1, a.load(i, [128]) + a.load(0, [128]) + a.load(7usize, [128]) + c.load([i], [128]));
            d.store((i, 0, 1usize, i), b.load((i, 0, i * 2, 3), [1, 2, 4, 8]));
            d.store_scalar((i, 0, 1usize, i), b.load_scalar([0, 0, 0, 0]) + 1.0);
            d.store_scalar([i; 4], 1.0);
        },
        (input::<f32, 1>(), input::<f32, 4>(), output::<f32, 1>(), output::<f32, 4>()),
    );
}

#[test]
fn promised_bounds_need_no_guards() {
    let code = |checked: bool| {
        let kernel = move |x: Array<f16, 2>, y: ArrayMut<f16, 2>| {
            // SAFETY: only text is made of this kernel.
            let (load, store) = unsafe {
                (ct::LoadOptions::new().check_bounds(checked), ct::StoreOptions::new().check_bounds(checked))
            };
            let i = ct::bid(0);
            y.store_with((i, 0), x.load_with((i, 0), [8, 64], load), store);
        };
        trace(kernel, (input::<f16, 2>(), output::<f16, 2>()));
        // Extents that vectors need not divide: checked, tiles at the end go element by element.
        let x = ct::ArraySpec::<f16, 2>::new([100, 72]).strides([80, 1]).unwrap();
        ct::inspect(kernel, (x, x.mutable())).target(ct::Target::SM_80).ptx().unwrap()
    };
    let (checked, promised) = (code(true), code(false));
    assert!(checked.contains("setp") && checked.contains("bra"), "{checked}");
    assert!(!promised.contains("setp") && !promised.contains("@"), "{promised}");
    assert!(promised.matches("ld.global").count() <= checked.matches("ld.global").count() / 2, "{promised}");
}

#[test]
fn ordered_accesses_have_qualifiers_or_fences() {
    let code = |extent: usize, shape: usize| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let load = ct::LoadOptions::new().acquire(ct::Scope::Device);
            let store = ct::StoreOptions::new().release(ct::Scope::System);
            // The second one is another load: nothing is merged.
            let twice = x.load_with([0], [shape], load.clone()) + x.load_with([0], [shape], load);
            y.store_with([0], twice, store);
        };
        trace(kernel, (input::<f32, 1>(), output::<f32, 1>()));
        let x = ct::ArraySpec::<f32, 1>::new([extent]);
        ct::inspect(kernel, (x, x.mutable())).target(ct::Target::SM_90A).ptx().unwrap()
    };
    // A vector for each thread: it carries the order.
    let one = code(512, 512);
    assert_eq!(one.matches("ld.acquire.gpu.global.v4.f32").count(), 2, "{one}");
    assert_eq!(one.matches("st.release.sys.global.v4.f32").count(), 1, "{one}");
    assert!(!one.contains("fence.") && !one.contains(".nc"), "{one}");
    // Two loads that acquire are followed by barriers, and a store that releases comes after one.
    assert_eq!(one.matches("barrier.cta.sync").count(), 3, "{one}");
    let several = code(32768, 32768);
    assert!(several.contains("ld.relaxed.gpu.global.v4.f32") && several.contains("st.relaxed.sys"), "{several}");
    assert_eq!(several.matches("fence.acq_rel.gpu").count(), 2, "{several}");
    assert_eq!(several.matches("fence.acq_rel.sys").count(), 1, "{several}");
    // Tiles that may exceed the array are accessed element by element.
    let ragged = code(510, 512);
    assert!(!ragged.contains("ld.acquire") && ragged.contains("fence.acq_rel.gpu"), "{ragged}");
}

#[test]
fn tiles_are_added_several_neighbours_at_a_time() {
    fn add<T: ct::ops::AtomicAdd>(x: Array<T, 1>, y: ArrayMut<T, 1>) {
        y.atomic_store_add(ct::bid(0), x.load(ct::bid(0), [1024]));
    }
    fn code<T: ct::ops::AtomicAdd>(extent: usize, target: ct::Target) -> String {
        trace(add::<T>, (input::<T, 1>(), output::<T, 1>()));
        let x = ct::ArraySpec::<T, 1>::new([extent]);
        ct::inspect(add::<T>, (x, x.mutable())).target(target).ptx().unwrap()
    }
    let whole = code::<f32>(4096, ct::Target::SM_90A);
    assert!(whole.contains("red.relaxed.gpu.global.add.v4.f32"), "{whole}");
    assert!(!whole.contains("red.relaxed.gpu.global.add.f32"), "{whole}");
    let halves = code::<f16>(4096, ct::Target::SM_90A);
    assert!(halves.contains("red.relaxed.gpu.global.add.noftz.v8.f16"), "{halves}");
    // At the edge one by one; as on targets that know no other way, and of integers.
    let ragged = code::<f32>(4097, ct::Target::SM_90A);
    assert!(ragged.contains("global.add.v4.f32") && ragged.contains("global.add.f32"), "{ragged}");
    assert!(!code::<f32>(4096, ct::Target::SM_80).contains(".v4.f32 ["), "stores");
    assert!(code::<i32>(4096, ct::Target::SM_90A).contains("red.relaxed.gpu.global.add.u32"));
}

#[test]
fn views_order_loads_and_stores_each_for_itself() {
    let module = trace(
        |x: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>| {
            let (x, y) = (x.tiled([8]).acquire(ct::Scope::Block), y.tiled([8]).relaxed(ct::Scope::System));
            x.store(0, x.load(0));
            y.release(ct::Scope::Device).store(0, y.load(0));
        },
        (output::<i32, 1>(), output::<i32, 1>()),
    );
    let text = module.to_string();
    let orders = ["load_view_tko acquire tl_blk", "store_view_tko weak", "load_view_tko relaxed sys"];
    assert!(orders.iter().all(|order| text.contains(order)), "{text}");
    assert!(text.contains("store_view_tko release device"), "{text}");
}

#[test]
fn hints_of_accesses_select_stages_and_roles() {
    let product = |load: ct::LoadOptions, store: ct::StoreOptions| {
        move |a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>| {
            let (i, j) = (ct::bid(0), ct::bid(1));
            let acc = ct::fold(..a.num_tiles(1, [128, 64]), ct::zeros::<f32, 2>([128, 128]), |acc, k| {
                let a = a.load_with((i, k), [128, 64], load.clone());
                ct::mma(a, b.load_with((k, j), [64, 128], load.clone()), acc)
            });
            c.store_with((i, j), acc.cast::<f16>(), store.clone());
        }
    };
    let x = ct::ArraySpec::<f16, 2>::new([1024, 1024]);
    let code = |load: ct::LoadOptions, store: ct::StoreOptions, target: ct::Target| {
        ct::inspect(product(load, store), (x, x, x.mutable())).target(target).ptx().unwrap()
    };
    let (load, store) = (ct::LoadOptions::new(), ct::StoreOptions::new());
    let plain = code(load.clone(), store.clone(), ct::Target::SM_90A);
    let bulk = |text: &str| ["shared::cta.global", "global.shared::cta"].map(|way| text.contains(way));
    assert_eq!(bulk(&plain), [true, true], "{plain}");
    let threads = code(load.clone().allow_tma(false), store.clone(), ct::Target::SM_90A);
    assert!(!bulk(&threads)[0] && threads.contains("cp.async.cg"), "{threads}");
    let stored = code(load.clone(), store.clone().allow_tma(false), ct::Target::SM_90A);
    assert_eq!(bulk(&stored), [true, false], "{stored}");
    // Copies that may still be on their way at the head of an iteration: all stages but the one
    // that is used, and the one that is filled.
    let stages = |latency: u32| {
        let text = code(load.clone().latency(latency), store.clone(), ct::Target::SM_80);
        (0..9).rev().find(|n| text.contains(&format!("cp.async.wait_group {n};"))).map(|n| n + 2)
    };
    assert_eq!([1, 2, 3, 4].map(stages), [Some(2), Some(2), Some(3), Some(4)]);
    // Two barriers for each stage of a ring.
    let barriers = |latency: u32| {
        code(load.clone().latency(latency), store.clone(), ct::Target::SM_90A).matches("mbarrier.init").count()
    };
    assert_eq!([1, 3, 5].map(barriers), [4, 6, 10]);
}

#[test]
fn gathered_rows_are_wide_where_all_of_them_are_aligned() {
    let code = |row: usize| {
        let kernel = |x: Array<f32, 2>, out: ArrayMut<f32, 2>| {
            let rows = ct::arange(0..8).unsqueeze(1);
            out.store([0, 0], x.gather((rows, 0..64)));
        };
        let x = ct::ArraySpec::<f32, 2>::new([7, 61]).strides([row, 1]).unwrap();
        ct::inspect(kernel, (x, output::<f32, 2>())).target(ct::Target::SM_80).ptx().unwrap()
    };
    let loads = |text: &str| text.lines().any(|line| line.contains("ld.global") && line.contains(".v4"));
    assert!(loads(&code(64)), "{}", code(64));
    assert!(!loads(&code(61)), "{}", code(61));
}

fn paddings<T: AnyFloat>() {
    for padding in [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf] {
        let options = ct::LoadOptions::new().padding(padding).latency(3).allow_tma(false);
        trace(
            |a: Array<T, 2>, out: ArrayMut<T, 2>| {
                let x = a.load_with([0, 0], [8, 8], options.clone());
                out.store_with([0, 0], x, ct::StoreOptions::new().latency(10));
            },
            (input::<T, 2>(), output::<T, 2>()),
        );
    }
}

#[test]
fn paddings_of_floats() {
    for_types!(paddings: f64 f32 tf32 f16 bf16 f8e5m2);
}

fn multiply<A, B, C>()
where
    A: ct::element::MmaInput<B, C>,
    B: Element,
    C: Element,
{
    trace(
        |a: Array<A, 2>, b: Array<B, 2>, c: ArrayMut<C, 2>| {
            let (x, y) = (a.load([0, 0], [16, 32]), b.load([0, 0], [32, 8]));
            let acc = ct::mma(x, y, c.load([0, 0], [16, 8]));
            let batch = ct::mma(x.unsqueeze(0), y.unsqueeze(0), acc.unsqueeze(0));
            c.store([0, 0], batch.squeeze(0));
        },
        (input::<A, 2>(), input::<B, 2>(), output::<C, 2>()),
    );
}

#[test]
fn matrix_multiply_of_all_pairs() {
    multiply::<f16, f16, f16>();
    multiply::<f16, f16, f32>();
    multiply::<bf16, bf16, f32>();
    multiply::<tf32, tf32, f32>();
    multiply::<f32, f32, f32>();
    multiply::<f64, f64, f64>();
    multiply::<f8e4m3fn, f8e4m3fn, f16>();
    multiply::<f8e4m3fn, f8e4m3fn, f32>();
    multiply::<f8e5m2, f8e5m2, f16>();
    multiply::<f8e5m2, f8e5m2, f32>();
    multiply::<i8, i8, i32>();
    multiply::<i8, u8, i32>();
    multiply::<u8, i8, i32>();
    multiply::<u8, u8, i32>();
}

#[test]
fn matmul_picks_the_accumulator() {
    trace(
        |a: Array<f16, 2>, b: Array<u8, 2>, c: ArrayMut<f32, 2>, d: ArrayMut<i32, 2>| {
            let (x, y) = (load(a), load(b));
            c.store([0, 0], ct::matmul(x, x.transpose()));
            d.store([0, 0], ct::matmul(y, y.transpose().cast::<i8>()));
        },
        (input::<f16, 2>(), input::<u8, 2>(), output::<f32, 2>(), output::<i32, 2>()),
    );
}

/// The hint unrolls iterations, with a remainder loop; products and run-time steps do not change.
#[test]
fn loops_are_unrolled_by_the_hint() {
    let kernel = |step: bool, rounds: u32| {
        move |x: Array<f32, 1>, y: ArrayMut<f32, 1>, n: Scalar<i32>| {
            let range = ct::range(0, 100).step(if step { n } else { ct::scalar(2) }).unroll(rounds);
            let sum = ct::fold(range, ct::zeros::<f32, 1>([128]), |sum, i| sum + x.load(i, [128]).sin());
            y.store(0, sum);
        }
    };
    let x = ct::ArraySpec::<f32, 1>::new([4096]);
    let rounds = |step, rounds| {
        let code = ct::inspect(kernel(step, rounds), (x, x.mutable(), 3)).target(ct::Target::SM_90A).ptx().unwrap();
        code.matches("ld.global").count()
    };
    let single = rounds(false, 1);
    assert_eq!(rounds(false, 4), 5 * single);
    assert_eq!(rounds(true, 4), rounds(true, 1));
}

/// The character that delimits values while a message is traced: in the text of the message, in
/// that of a value of the host, and in the text of another message.
#[test]
fn private_characters_in_messages_are_text() {
    use std::fmt::{Display, Formatter, Result};
    struct Marks;
    impl Display for Marks {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            f.write_str("\u{F8FE}1\u{F8FE} \u{F8FE}")
        }
    }
    struct Nested<'a>(&'a std::cell::RefCell<String>, Scalar<i32>);
    impl Display for Nested<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> Result {
            let text = self.1.to_string();
            f.write_str(&text)?;
            *self.0.borrow_mut() = text;
            Ok(())
        }
    }
    let kernel = |x: Array<i32, 1>, y: Array<i32, 1>| {
        let (a, b) = (x.extent(0), y.extent(0));
        ct::println!("\u{F8FE}0\u{F8FE} {a} \u{F8FE} {Marks} {b} \u{F8FE}99999999999999999999\u{F8FE} {a:>4}");
        ct::assert!(a.gt(0), "\u{F8FE} {b} 50%\u{F8FE}0\u{F8FE}");
        // The text of a value outlives its message: its text is no value of another message.
        let kept = std::cell::RefCell::new(String::new());
        ct::println!("{}", Nested(&kept, b));
        ct::println!("{a} {}", kept.borrow());
    };
    let spec = ct::ArraySpec::<i32, 1>::new([64]);
    let text = ct::inspect(kernel, (spec, spec)).ir().unwrap();
    let [print, nested, other] = &text.lines().filter(|line| line.contains("print_tko")).collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let mark = r"\EF\A3\BE";
    let shown = format!("\"{mark}0{mark} %d {mark} {mark}1{mark} {mark} %d {mark}99999999999999999999{mark} %4d\\0A\"");
    assert!(print.contains(&shown) && print.matches("tile<i32>").count() == 3, "{print}\n{shown}");
    assert!(nested.contains("\"%d\\0A\""), "{nested}");
    assert!(other.contains("\"%d ") && other.matches("tile<i32>").count() == 1, "{other}");
    let assertion = text.lines().find(|line| line.contains("assert ")).unwrap_or(&text);
    assert!(assertion.contains(&format!("\"{mark} %d 50%%{mark}0{mark}\"")), "{assertion}");
}

/// The ops of sums of products, in the scope of a mode.
fn sums_of_products(mode: ct::FloatMode) -> Vec<Opcode> {
    let module = trace(
        move |a: Array<f32, 2>, out: ArrayMut<f32, 2>| {
            let x = a.load([0, 0], [16, 16]);
            let y = ct::with_mode(mode, || {
                let sums = [x * 2.0 + x, x * 2.0 - x, x - x * 3.0, x + ct::matmul(x, x)];
                sums.into_iter().reduce(|a, b| a.max(b)).expect("four sums")
            });
            out.store([0, 0], y.add_with(x * 5.0, mode));
        },
        (input::<f32, 2>(), output::<f32, 2>()),
    );
    ops(&module)
}

#[test]
fn contraction_fuses_products_with_sums() {
    let count = |mode, code: Opcode| sums_of_products(mode).into_iter().filter(|&op| op == code).count();
    let (separate, fused) = (ct::FloatMode::new(), ct::FloatMode::new().contract());
    assert_eq!([count(separate, Opcode::Fma), count(fused, Opcode::Fma)], [0, 4]);
    assert_eq!([count(separate, Opcode::AddF), count(fused, Opcode::AddF)], [3, 0]);
    // A matrix product rounds to nearest, and so does the product outside of the scope.
    assert_eq!(count(fused.rounding(Rounding::Zero), Opcode::AddF), 2);
}

/// The ops of exponentials and of an added mask, in the scope of a mode.
fn exponentials(mode: ct::FloatMode) -> Vec<Opcode> {
    let module = trace(
        move |a: Array<f32, 2>, out: ArrayMut<f32, 2>, c: Scalar<f32>| {
            let (x, m) = (a.load([0, 0], [16, 16]), a.load([0, 0], [16, 1]));
            let y = ct::with_mode(mode, || {
                let differences = [(x - m).exp(), ((x - m) * c).exp(), ((x - m) * 0.5).exp2()];
                let bias = x.lt(m).select(ct::zeros::<f32, 2>([16, 16]), f32::NEG_INFINITY);
                let others = [(x * c - m).exp(), (x * c).exp(), (x * x).exp(), (x - m.transpose()).exp2(), x + bias];
                differences.into_iter().chain(others).reduce(|a, b| a.max(b)).expect("eight tiles")
            });
            out.store([0, 0], y);
        },
        (input::<f32, 2>(), output::<f32, 2>(), 0.5f32),
    );
    ops(&module)
}

#[test]
fn reassociation_leaves_one_operation_before_an_exponential() {
    let count = |mode, code: Opcode| exponentials(mode).into_iter().filter(|&op| op == code).count();
    let (separate, fused) = (ct::FloatMode::new(), ct::FloatMode::new().contract().reassociate());
    assert_eq!([count(separate, Opcode::Exp), count(separate, Opcode::Exp2), count(separate, Opcode::AddF)], [5, 2, 1]);
    // The exponential of a square remains.
    assert_eq!([count(fused, Opcode::Exp), count(fused, Opcode::Exp2), count(fused, Opcode::AddF)], [1, 6, 0]);
    assert_eq!([count(separate, Opcode::Select), count(fused, Opcode::Select)], [1, 2]);
    assert_eq!(count(fused.rounding(Rounding::Zero), Opcode::Exp), 5);
}
