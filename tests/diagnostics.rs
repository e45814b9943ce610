//! Misuse of the front end: the whole text of what the user reads.
//!
//! Places are printed as `FILE:LINE:COLUMN` of this file; the tests replace them by the text of that line, cut
//! at the column, so that they survive edits.

mod traced;

use std::cell::Cell;

use cutlet as ct;
use cutlet::prelude::*;
use traced::{input, output};

/// Replaces each `tests/diagnostics.rs:LINE:COLUMN` by `<source text from there>`.
fn with_source(text: &str) -> String {
    let source: Vec<&str> = include_str!("diagnostics.rs").lines().collect();
    let mut parts = text.split("tests/diagnostics.rs:");
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let mut fields = part.splitn(3, ':');
        let line: usize = fields.next().unwrap().parse().unwrap();
        let column: usize = fields.next().unwrap().parse().unwrap();
        let code = &source[line - 1][column - 1..];
        result += &format!("<{}>:{}", code.trim_end_matches(';'), fields.next().unwrap());
    }
    result
}

/// A text without what tells of calls: whether these have places is up to the build.
fn without_calls(text: &str) -> String {
    let tells = |line: &&str| [" is called ", ": kernel `kernel` is traced"].iter().any(|part| line.contains(part));
    text.lines().filter(|line| !tells(line)).collect::<Vec<_>>().join("\n")
}

/// The problems of a kernel without parameters.
#[track_caller]
fn problems(kernel: impl Fn()) -> String {
    with_source(&without_calls(&traced::problems(kernel, ())))
}

/// The problems of a kernel with an array to read and one to write.
#[track_caller]
fn problems_with_arrays<T: Element>(kernel: impl Fn(Array<T, 2>, ArrayMut<T, 2>)) -> String {
    with_source(&without_calls(&traced::problems(kernel, (input::<T, 2>(), output::<T, 2>()))))
}

fn tile(rows: usize, columns: usize) -> Tile<f32, 2> {
    ct::full([rows, columns], 1.5)
}

/// The sum of a vector, as a scalar.
trait SumToScalar {
    fn to_scalar_sum(self) -> Scalar<f32>;
}
impl SumToScalar for Tile<f32, 1> {
    fn to_scalar_sum(self) -> Scalar<f32> {
        self.sum(0).item()
    }
}

#[test]
fn ranks_do_not_fit() {
    let text = problems_with_arrays(|a: Array<f32, 2>, c| {
        let _ = a.load((0, 0), [2, 4, 8]);
        let _ = a.load((0, 0), [1, 4, 1]);
        c.store((0, 0), a.load((0, 0), [64]).reshape([4, 4, 4]).fit());
        let _ = ct::zeros::<f32, 1>([8]) + tile(4, 16);
    });
    assert_eq!(
        text,
        "<load((0, 0), [2, 4, 8])>: `load` of shape [2, 4, 8], where 2 axes are wanted\n  \
           only axes of extent 1 come and go: `.reshape(..)`, `.sum(axis)`\n\
         <load((0, 0), [1, 4, 1])>: `load` of shape [1, 4, 1], where 2 axes are wanted\n  \
           it is open which axes of extent 1 go: `.squeeze(axis)`, `.reshape(..)`\n\
         <fit())>: `fit` of shape [4, 4, 4], where 2 axes are wanted\n  \
           only axes of extent 1 come and go: `.reshape(..)`, `.sum(axis)`\n\
         <ct::zeros::<f32, 1>([8]) + tile(4, 16)>: `+` of tiles f32 [8] and f32 [4, 16]\n  \
           extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

#[test]
fn extents_do_not_fit() {
    let text = problems(|| {
        let (a, b) = (tile(4, 8), tile(4, 16));
        let _ = a + b;
    });
    assert_eq!(
        text,
        "\
<a + b>: `+` of tiles f32 [4, 8] and f32 [4, 16]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

/// A function that several kernels may call.
fn added(rows: usize) -> Tile<f32, 2> {
    tile(rows, 8) + tile(3, 8)
}

fn twice(body: impl Fn() -> Tile<f32, 2>) {
    let _ = (body(), body());
}

/// What is called on the way to a problem, innermost first, and how often the place of the call is known.
fn calls(text: &str) -> (Vec<String>, usize) {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" is called ")).collect();
    let known = lines.iter().filter(|line| line.trim_start().starts_with('<')).count();
    let called = |line: &&str| {
        let line = line.trim_start();
        let line = line.strip_prefix('<').and_then(|rest| rest.split_once(">: ")).map_or(line, |(_, rest)| rest);
        line.split(" is called ").next().unwrap_or_default().to_string()
    };
    (lines.iter().map(called).collect(), known)
}

#[test]
fn problems_in_functions_name_their_callers() {
    let kernel = || ct::for_each(0..3, (), |_, ()| twice(|| added(4)));
    let text = with_source(&traced::problems(kernel, ()));
    let expected = "<tile(rows, 8) + tile(3, 8)>: `+` of tiles f32 [4, 8] and f32 [3, 8]\n  extents must be equal";
    assert!(text.starts_with(expected), "{text}");
    let (called, known) = calls(&text);
    let closure = "a closure of `problems_in_functions_name_their_callers`";
    assert_eq!(called, ["`added`", closure, "`twice`"], "{text}");
    // Places are in the tables of lines, which builds may leave out.
    assert!(known == 0 || known == 3, "{text}");
    assert!(known == 0 || text.contains("<added(4)))>: `added` is called here"), "{text}");
    assert!(text.ends_with("<traced::problems(kernel, ()))>: kernel `kernel` is traced for this call"), "{text}");
}

#[test]
fn extents_do_not_fit_in_a_method() {
    let text = problems(|| {
        let (a, b) = (tile(4, 8), tile(2, 8));
        let _ = a.fma(2.0, b);
    });
    assert_eq!(
        text,
        "\
<fma(2.0, b)>: `fma` of tiles f32 [4, 8] and f32 [2, 8]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

#[test]
fn extent_has_too_many_bits() {
    let text = problems(|| {
        let _ = ct::zeros::<f16, 2>([4, 48]);
        let _ = ct::zeros::<f16, 2>([4, 45]);
    });
    assert_eq!(
        text,
        "\
<ct::zeros::<f16, 2>([4, 45])>: `zeros`: extent 45 of axis 1 in tile shape [4, 45]
  extents of tiles are sums of at most three powers of two: take 48 and let loads pad (stores drop what lies outside), or 44 and more tiles"
    );
}

#[test]
fn extent_is_zero() {
    let text = problems(|| {
        let _ = ct::arange(0, 0, 1);
    });
    assert_eq!(
        text,
        "\
<ct::arange(0, 0, 1)>: `arange`: extent 0 of axis 0 in tile shape [0]
  every extent of a tile is at least 1"
    );
}

#[test]
fn tile_is_too_large() {
    let text = problems(|| {
        let _ = ct::ones::<i8, 2>([8192, 4096]);
    });
    assert_eq!(
        text,
        "\
<ct::ones::<i8, 2>([8192, 4096])>: `ones`: tile shape [8192, 4096] has more than 16777216 (2^24) elements
  take a smaller tile and more tile blocks, or loop over tiles"
    );
}

#[test]
fn loaded_extent_has_too_many_bits() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.load([0, 0], [101, 8]);
    });
    assert_eq!(
        text,
        "\
<load([0, 0], [101, 8])>: `load`: extent 101 of axis 0 in tile shape [101, 8]
  extents of tiles are sums of at most three powers of two: take 104 and let loads pad (stores drop what lies outside), or 100 and more tiles"
    );
}

#[test]
fn index_is_a_tile() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.load([ct::arange(4, 0, 1), ct::arange(1, 0, 1)], [8, 8]);
    });
    assert_eq!(
        text,
        "\
<load([ct::arange(4, 0, 1), ct::arange(1, 0, 1)], [8, 8])>: a tile of shape [4] where one value is wanted
  only a tile of one element converts to a scalar: reduce it first"
    );
}

#[test]
fn padding_does_not_exist() {
    let text = problems_with_arrays::<i32>(|a, _| {
        let _ = a.load_with([0, 0], [8, 8], ct::LoadOptions::new().padding(Padding::NaN));
    });
    assert_eq!(
        text,
        "\
<load_with([0, 0], [8, 8], ct::LoadOptions::new().padding(Padding::NaN))>: `load`: padding `NaN` does not exist for i32
  pad with `Padding::Zero`, or load and replace with `select`"
    );
}

#[test]
fn infinite_padding_of_a_small_float() {
    let text = problems_with_arrays::<f8e4m3fn>(|a, _| {
        let _ = a.load_with([0, 0], [8, 8], ct::LoadOptions::new().padding(Padding::NegInf));
    });
    assert_eq!(
        text,
        "\
<load_with([0, 0], [8, 8], ct::LoadOptions::new().padding(Padding::NegInf))>: `load`: padding `NegInf` does not exist for f8e4m3fn
  pad with `Padding::Zero`, or load and replace with `select`"
    );
}

#[test]
fn latency_out_of_range() {
    let text = problems_with_arrays::<f32>(|a, out| {
        out.store_with([0, 0], a.load([0, 0], [8, 8]), ct::StoreOptions::new().latency(11));
    });
    assert_eq!(
        text,
        "\
<store_with([0, 0], a.load([0, 0], [8, 8]), ct::StoreOptions::new().latency(11))>: `store`: latency 11 is not between 1 and 10
  leave it out unless measurements ask for it"
    );
}

#[test]
fn single_four_bit_element() {
    let text = problems_with_arrays::<f4e2m1fn>(|a, _| {
        let _ = a.load([0, 0], [1, 1]);
    });
    assert_eq!(
        text,
        "\
<load([0, 0], [1, 1])>: `load` of a single f4e2m1fn: two of them share a byte
  take a tile with at least two elements along some axis"
    );
}

#[test]
fn order_is_no_permutation() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.load_with([0, 0], [8, 8], ct::LoadOptions::new().order([1, 1]));
    });
    assert_eq!(
        text,
        "\
<load_with([0, 0], [8, 8], ct::LoadOptions::new().order([1, 1]))>: `load`: order [1, 1] is not a permutation of the axes 0 to 1
  name each axis of the array once"
    );
}

#[test]
fn array_permutation() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.permute([0, 2]);
    });
    assert_eq!(
        text,
        "\
<permute([0, 2])>: `permute`: [0, 2] is not a permutation of the axes 0 to 1
  name each axis of the array once"
    );
}

#[test]
fn tile_permutation() {
    let text = problems(|| {
        let _ = tile(4, 8).permute([1, 1]);
    });
    assert_eq!(
        text,
        "\
<permute([1, 1])>: `permute`: [1, 1] is not a permutation of the axes 0 to 1
  name each axis of the tile once"
    );
}

#[test]
fn array_axis() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.extent(2);
        let _ = a.num_tiles(3, [8, 8]);
    });
    assert_eq!(
        text,
        "\
<extent(2)>: `extent`: axis 2 of an array with 2 axes
  axes are counted from 0
<num_tiles(3, [8, 8])>: `num_tiles`: axis 3 of an array with 2 axes
  axes are counted from 0"
    );
}

#[test]
fn grid_axis() {
    let text = problems(|| {
        let _ = ct::bid(3);
    });
    assert_eq!(
        text,
        "\
<ct::bid(3)>: `bid(3)`: a grid has the axes 0, 1 and 2
  axes that a launch does not name have one block"
    );
}

#[test]
fn reshape_count() {
    let text = problems(|| {
        let _ = tile(4, 8).reshape([4, 4, 4]);
    });
    assert_eq!(
        text,
        "\
<reshape([4, 4, 4])>: `reshape` of shape [4, 8] (32 elements) to [4, 4, 4] (64 elements)
  the number of elements stays; `broadcast_to` repeats elements"
    );
}

#[test]
fn broadcast_shrinks() {
    let text = problems(|| {
        let _ = tile(4, 8).broadcast_to([4, 16]);
    });
    assert_eq!(
        text,
        "\
<broadcast_to([4, 16])>: `broadcast_to` of shape [4, 8] to [4, 16]
  only extents of 1 are stretched"
    );
}

#[test]
fn squeeze_of_a_long_axis() {
    let text = problems(|| {
        let _ = tile(4, 8).squeeze(1);
    });
    assert_eq!(
        text,
        "\
<squeeze(1)>: `squeeze(1)` of shape [4, 8]: the extent is 8
  only an axis of extent 1 can be dropped"
    );
}

#[test]
fn unsqueeze_axis() {
    let text = problems(|| {
        let _ = tile(4, 8).unsqueeze(3);
    });
    assert_eq!(
        text,
        "\
<unsqueeze(3)>: `unsqueeze`: axis 3 of a tile with 2 axes
  axes are counted from 0"
    );
}

#[test]
fn item_of_many() {
    let text = problems(|| {
        let _ = tile(4, 8).item();
    });
    assert_eq!(
        text,
        "\
<item()>: a tile of shape [4, 8] where one value is wanted
  only a tile of one element converts to a scalar: reduce it first"
    );
}

#[test]
fn reduced_axis() {
    let text = problems(|| {
        let _ = tile(4, 8).sum(2);
    });
    assert_eq!(
        text,
        "\
<sum(2)>: `sum` along axis 2 of a tile of shape [4, 8]
  axes are counted from 0"
    );
}

#[test]
fn reduced_axis_twice() {
    let text = problems(|| {
        let _ = tile(4, 8).reduce_max([0, 0]);
    });
    assert_eq!(
        text,
        "\
<reduce_max([0, 0])>: `reduce_max` along axes [0, 0] names axis 0 more than once
  `..` stands for all axes"
    );
}

#[test]
fn mma_inner_extents() {
    let text = problems(|| {
        let _ = ct::mma(tile(16, 32), tile(16, 8), tile(16, 8));
    });
    assert_eq!(
        text,
        "\
<ct::mma(tile(16, 32), tile(16, 8), tile(16, 8))>: `mma` of f32 [16, 32] and f32 [16, 8]
  a is [m, k], b is [k, n]: the last extent of a is the first one of b (`.transpose()` exchanges them)"
    );
}

#[test]
fn mma_accumulator() {
    let text = problems(|| {
        let _ = ct::mma(tile(16, 32), tile(32, 8), tile(8, 16));
    });
    assert_eq!(
        text,
        "\
<ct::mma(tile(16, 32), tile(32, 8), tile(8, 16))>: `mma` of f32 [16, 32] and f32 [32, 8] into an accumulator f32 [8, 16]
  the accumulator has the shape of the product: [16, 8]"
    );
}

#[test]
fn state_changes_its_shape() {
    let text = problems(|| {
        let _ = ct::for_each(0..4, tile(4, 1), |_, sum| sum + tile(4, 8));
    });
    assert_eq!(
        text,
        "\
<ct::for_each(0..4, tile(4, 1), |_, sum| sum + tile(4, 8))>: the body of `for_each` gives a tile of shape [4, 8] where [4, 1] is expected
  <sum + tile(4, 8))>: it is computed here
  values keep their shape through loops and branches"
    );
}

#[test]
fn state_changes_its_length() {
    let text = problems(|| {
        let _ = ct::for_each(0..4, vec![tile(4, 1)], |_, list| [list.clone(), list].concat());
    });
    assert_eq!(
        text,
        "\
<ct::for_each(0..4, vec![tile(4, 1)], |_, list| [list.clone(), list].concat())>: `for_each`: the state has 1 values and comes back with 2
  a `Vec` in the state keeps its length"
    );
}

#[test]
fn branches_differ() {
    let text = problems(|| {
        let _ = ct::if_else(ct::bid(0).eq(0), || tile(4, 1), || tile(1, 4));
    });
    assert_eq!(
        text,
        "\
<ct::if_else(ct::bid(0).eq(0), || tile(4, 1), || tile(1, 4))>: a branch of `if_else` gives a tile of shape [1, 4] where [4, 1] is expected
  <ct::full([rows, columns], 1.5)>: it is computed here
  values keep their shape through loops and branches"
    );
}

#[test]
fn step_is_not_positive() {
    let text = problems(|| {
        ct::for_each(ct::range(8, 0).step(0), (), |_, ()| ());
    });
    assert_eq!(
        text,
        "\
<ct::for_each(ct::range(8, 0).step(0), (), |_, ()| ())>: `for_each`: the step is 0
  a range goes up or down by 1 at least"
    );
}

#[test]
fn value_leaves_a_loop() {
    let text = problems(|| {
        let leak = Cell::new(None);
        ct::for_each(0..4, (), |i, ()| leak.set(Some(i * 2)));
        let _ = leak.get().unwrap() + 1;
    });
    assert_eq!(
        text,
        "\
<leak.get().unwrap() + 1>: this value belongs to the body of `for_each` and is used outside of it
  <i * 2)))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn counter_leaves_a_loop() {
    let text = problems(|| {
        let leak = Cell::new(None);
        ct::for_each(0..4, (), |i, ()| leak.set(Some(i)));
        let _ = leak.get().unwrap() + 1;
    });
    assert_eq!(
        text,
        "\
<leak.get().unwrap() + 1>: this value belongs to the body of `for_each` and is used outside of it
  <ct::for_each(0..4, (), |i, ()| leak.set(Some(i)))>: it is an argument of this body
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn value_leaves_a_branch() {
    let text = problems_with_arrays::<f32>(|a, out| {
        let leak = Cell::new(None);
        ct::if_then(ct::bid(0).gt(0), || leak.set(Some(a.load([0, 0], [8, 8]))));
        out.store([0, 0], leak.get().unwrap());
    });
    assert_eq!(
        text,
        "\
<store([0, 0], leak.get().unwrap())>: this value belongs to the body of `if_then` and is used outside of it
  <load([0, 0], [8, 8]))))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn accumulator_leaves_a_reduction() {
    let text = problems(|| {
        let leak = Cell::new(None);
        let sum = tile(4, 8).reduce(1, 0.0, |acc, x| {
            leak.set(Some(acc));
            acc + x
        });
        let _ = sum + leak.get().unwrap();
    });
    assert_eq!(
        text,
        "\
<sum + leak.get().unwrap()>: this value belongs to the closure of `reduce` and is used outside of it
  <reduce(1, 0.0, |acc, x| {>: it is an argument of this body
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn memory_in_a_reduction() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = tile(4, 8).reduce(1, 0.0, |acc, x| acc + x * a.load_scalar([0, 0]));
    });
    assert_eq!(
        text,
        "\
<load_scalar([0, 0]))>: the closure of `reduce` takes only elementwise operations on scalars, and this operation reads or writes memory
  compute it before, outside of the closure"
    );
}

#[test]
fn tiles_in_a_map() {
    let text = problems(|| {
        let _ = tile(4, 8).map(|x| x + tile(4, 8).reshape([32]).to_scalar_sum());
    });
    assert_eq!(
        text,
        "\
<ct::full([rows, columns], 1.5)>: the closure of `map` takes only elementwise operations on scalars, and this operation works on tiles
  compute it before, outside of the closure"
    );
}

#[test]
fn loop_in_a_map() {
    let text = problems(|| {
        let _ = tile(4, 8).map(|x| ct::for_each(0..3, x, |_, x| x * x));
    });
    assert_eq!(
        text,
        "\
<ct::for_each(0..3, x, |_, x| x * x))>: the closure of `map` takes only elementwise operations on scalars, and this operation has control flow or a reduction of its own
  compute it before, outside of the closure"
    );
}

#[test]
fn flush_to_zero_of_f16() {
    let text = problems(|| {
        let _ = ct::ones::<f16, 1>([8]).add_with(1.0, ct::FloatMode::new().flush_to_zero());
    });
    assert_eq!(
        text,
        "\
<add_with(1.0, ct::FloatMode::new().flush_to_zero())>: `add_with`: flush to zero exists for f32 only, and this tile is f16
  leave it out, or `.cast::<f32>()` first"
    );
}

#[test]
fn rounding_of_an_operation() {
    let text = problems(|| {
        let _ = tile(4, 8).mul_with(2.0, Rounding::Approx);
        let _ = ct::ones::<f64, 1>([8]).div_with(3.0, Rounding::Full);
        let _ = tile(4, 8).max_with(2.0, Rounding::Zero.into());
    });
    assert_eq!(
        text,
        "\
<mul_with(2.0, Rounding::Approx)>: `mul_with` of f32 with rounding `Approx` does not exist
  on f32 it takes `NearestEven`, `Zero`, `NegInf`, `PosInf`
<div_with(3.0, Rounding::Full)>: `div_with` of f64 with rounding `Full` does not exist
  on f64 it takes `NearestEven`, `Zero`, `NegInf`, `PosInf`
<max_with(2.0, Rounding::Zero.into())>: `max_with` of f32 with rounding `Zero` does not exist
  this operation takes no rounding"
    );
}

#[test]
fn rounding_of_a_cast() {
    let text = problems(|| {
        let _ = tile(4, 8).cast_with::<f8e5m2>(Rounding::Zero);
    });
    assert_eq!(
        text,
        "\
<cast_with::<f8e5m2>(Rounding::Zero)>: `cast_with` from f32 to f8e5m2 cannot round `Zero`
  this conversion takes `NearestEven`"
    );
}

#[test]
fn range_does_not_fit() {
    let text = problems(|| {
        let _ = ct::arange(512, 0i8, 1);
    });
    assert_eq!(
        text,
        "\
<ct::arange(512, 0i8, 1)>: `arange`: 512 different numbers do not fit i8 (8 bits)
  take a wider type and `.cast` it"
    );
}

#[test]
fn host_number_does_not_fit() {
    let text = problems(|| {
        let _ = ct::bid(0) * (1usize << 40);
    });
    assert_eq!(
        text,
        "\
<ct::bid(0) * (1usize << 40)>: the host value 1099511627776 does not fit the i32 that it is combined with
  compute in i64: `.cast::<i64>()`, and write the host value as i64"
    );
}

#[test]
fn random_numbers_of_too_many_axes() {
    let text = problems(|| {
        let random = ct::Philox::new(1, 2);
        let _ = random.bits([0, 0, 0, 0], [2, 2, 2, 4]);
        let _ = random.bits((ct::at(ct::arange(8, 0, 1)), 0), [4, 16]);
    });
    assert_eq!(
        text,
        "\
<bits([0, 0, 0, 0], [2, 2, 2, 4])>: `bits`: random numbers for 4 axes
  they have 1 to 3 axes: `reshape` the tile
<bits((ct::at(ct::arange(8, 0, 1)), 0), [4, 16])>: `bits`: 8 positions for extent 4 of axis 0
  a list of positions has one for each element along its axis"
    );
}

#[test]
fn sorting_and_looking_up() {
    let text = problems(|| {
        let _ = tile(4, 8).sort(2);
        let _ = tile(4, 8).top_k(1, 3);
        let _ = tile(4, 8).gather(1, ct::zeros::<i32, 2>([2, 8]));
        let _ = ct::sort_by_key(tile(4, 8), (tile(4, 8), tile(4, 2)), 1);
    });
    assert_eq!(
        text,
        "\
<sort(2)>: `sort` along axis 2 of a tile of shape [4, 8]
  axes are counted from 0
<top_k(1, 3)>: `extract`: parts of shape [4, 3] of a tile of shape [4, 8]
  each extent of the part divides that of the tile
<gather(1, ct::zeros::<i32, 2>([2, 8]))>: `gather` along axis 1 of a tile of shape [4, 8] by positions of [2, 8]
  the extents along the other axes must be equal: use `broadcast_to`
<ct::sort_by_key(tile(4, 8), (tile(4, 8), tile(4, 2)), 1)>: `sort_by_key`: values of shape [4, 2] beside keys of shape [4, 8]
  each key has one value: use `broadcast_to`"
    );
}

#[test]
fn complex_numbers() {
    let text = problems_with_arrays::<f32>(|x, y| {
        let z = x.complex().load((0, 0), [4, 6]);
        let _ = ct::fft(z, 1);
        let _ = ct::ifft(z, 2);
        let _ = ct::fft(ct::Complex { re: tile(4, 8), im: tile(4, 2) }, 1);
        let _ = z + ct::Complex { re: tile(4, 6), im: tile(3, 6) };
        y.complex().store((0, ct::at(ct::arange(6, 0, 1))), z);
    });
    assert_eq!(
        text,
        "\
<ct::fft(z, 1)>: `fft` along axis 1 of a tile of shape [4, 6]
  the extent there has to be a power of two: make it 8 by a larger tile or `ct::cat`
<ct::ifft(z, 2)>: `ifft` along axis 2 of a tile of shape [4, 6]
  axes are counted from 0
<ct::fft(ct::Complex { re: tile(4, 8), im: tile(4, 2) }, 1)>: `fft` of real parts of shape [4, 8] and imaginary parts of shape [4, 2]
  the shapes must be equal: use `broadcast_to`
<z + ct::Complex { re: tile(4, 6), im: tile(3, 6) }>: `+` of tiles f32 [4, 6] and f32 [3, 6]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`
<store((0, ct::at(ct::arange(6, 0, 1))), z)>: `store`: the last component of the index of complex numbers is a list of positions
  a list goes along another axis; single numbers: `.reals()` and `gather`"
    );
}

#[test]
fn zip_map_shapes() {
    let text = problems(|| {
        let _ = tile(4, 8).zip_map(tile(4, 2), |a, b| a + b);
    });
    assert_eq!(
        text,
        "\
<zip_map(tile(4, 2), |a, b| a + b)>: `zip_map` of tiles with shapes [4, 8] and [4, 2]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

#[test]
fn all_problems_together_and_no_consequences() {
    let text = problems_with_arrays::<f32>(|a, out| {
        let wrong = a.load([0, 0], [8, 8]) + tile(8, 16);
        let more = (wrong * 2.0).exp().sum(0).reshape([1, 4, 2]).squeeze(0);
        out.store([0, 0], ct::for_each(0..2, more, |_, m| m + m));
        let _ = ct::num_blocks(7);
        for _ in 0..3 {
            let _ = tile(4, 8) - tile(8, 4);
        }
    });
    assert_eq!(
        text,
        "\
<a.load([0, 0], [8, 8]) + tile(8, 16)>: `+` of tiles f32 [8, 8] and f32 [8, 16]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`
<ct::num_blocks(7)>: `num_blocks(7)`: a grid has the axes 0, 1 and 2
  axes that a launch does not name have one block
<tile(4, 8) - tile(8, 4)>: `-` of tiles f32 [4, 8] and f32 [8, 4]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

#[test]
fn a_value_of_another_trace() {
    thread_local! {
        static KEPT: Cell<Option<Tile<f32, 2>>> = const { Cell::new(None) };
    }
    traced::trace(|| KEPT.set(Some(tile(4, 8))), ());
    let text = problems(|| {
        let _ = tile(4, 8) + KEPT.get().unwrap();
    });
    assert_eq!(
        text,
        "\
<tile(4, 8) + KEPT.get().unwrap()>: this value belongs to another kernel trace
  tiles and scalars exist only while their kernel is traced: do not keep them in statics or cells"
    );
}

#[test]
fn an_array_of_another_trace() {
    thread_local! {
        static KEPT: Cell<Option<Array<f32, 2>>> = const { Cell::new(None) };
    }
    traced::trace(|a: Array<f32, 2>| KEPT.set(Some(a)), (input::<f32, 2>(),));
    let text = problems(|| {
        let _ = KEPT.get().unwrap().load([0, 0], [8, 8]);
    });
    assert_eq!(
        text,
        "\
<load([0, 0], [8, 8])>: this array belongs to another kernel trace
  arrays exist only while their kernel is traced: do not keep them in statics or cells"
    );
}

#[test]
fn a_kernel_inside_of_a_kernel() {
    let inner = Cell::new(String::new());
    traced::trace(|| inner.set(problems(|| ())), ());
    assert_eq!(
        inner.into_inner(),
        "\
<problems(|| ())), ())>: kernel `kernel` is launched inside of another kernel
  a kernel is a function of tiles: call it as a function, or launch it after the other one"
    );
}

#[test]
#[should_panic = "tile operations work only inside a kernel: pass the function that contains this line to \
                  `cutlet::launch`"]
fn outside_of_a_kernel() {
    let _ = ct::bid(0);
}

#[test]
fn a_panic_in_a_kernel_leaves_no_trace() {
    let caught = std::panic::catch_unwind(|| {
        traced::trace(
            || {
                if tile(2, 2).shape() == [2, 2] {
                    panic!("of the user")
                }
            },
            (),
        );
    });
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"of the user"));
    assert!(!ct::tile::is_tracing());
    traced::trace(|| assert_eq!(tile(2, 2).len(), 4), ());
}

#[test]
fn flow_of_another_loop() {
    let text = problems(|| {
        ct::for_each_flow(..4, (), |i, (), flow| {
            ct::for_each(..3, (), |j, ()| flow.break_if(i.eq(j), ()));
        });
    });
    assert_eq!(
        text,
        "\
<break_if(i.eq(j), ()))>: `break_if` is for a loop around the one that it stands in
  <ct::for_each_flow(..4, (), |i, (), flow| {>: the loop that it is for
  <ct::for_each(..3, (), |j, ()| flow.break_if(i.eq(j), ()))>: the loop that it stands in
  give the condition out in the state of the inner loop, and ask for it there"
    );
    let text = problems(|| {
        let kept = Cell::new(None);
        ct::for_each_flow(..4, (), |_, (), flow| kept.set(Some(flow)));
        kept.get().unwrap().continue_if(ct::bid(0).eq(0), ());
    });
    assert!(text.contains(">: `continue_if`: the loop has ended\n") && text.contains(">: this loop\n"), "{text}");
}

#[test]
fn loop_without_an_end() {
    let text = problems(|| ct::loop_flow((), |(), _| ()));
    assert!(text.contains("`loop_flow`: nothing ends the loop\n  call `flow.break_if(condition, state)`"), "{text}");
}

#[test]
fn bodies_nested_too_deeply() {
    fn deeper(n: Scalar<i32>) {
        ct::if_then(n.gt(0), || deeper(n - 1));
    }
    let text = problems(|| deeper(ct::bid(0)));
    assert!(text.contains("`if_then`: bodies are nested deeper than 200\n  a function that calls itself"), "{text}");
    fn fibonacci(n: Scalar<i32>) -> Scalar<i32> {
        ct::if_else(n.lt(2), || n, || fibonacci(n - 1) + 1)
    }
    let caught = std::panic::catch_unwind(|| {
        problems(|| {
            let _ = fibonacci(ct::bid(0));
        })
    });
    assert!(caught.is_err(), "the kernel is stopped");
}

#[test]
fn messages_that_cannot_be() {
    let text = problems(|| {
        let (x, wide) = (tile(4, 1), tile(2, 8));
        ct::println!("{x:^8}");
        ct::println!("{:*>8}", x);
        ct::print(format_args!("a \0 {x}"));
        ct::assert!(x.gt(0.0), "{wide}");
        ct::assert!(ct::bid(0).gt(0), "{wide}");
        let _ = x.map(|x| {
            ct::println!("{x}");
            x
        });
    });
    let count = |part: &str| text.matches(part).count();
    assert_eq!(count("values of the kernel are aligned left or right, and filled with blanks"), 2, "{text}");
    assert_eq!(count("there is a NUL in the text"), 1, "{text}");
    assert_eq!(count("a tile of shape [2, 8] in the message, and the condition has shape [4, 1]"), 1, "{text}");
    assert_eq!(count("a tile of shape [2, 8] in the message, and the condition has shape []"), 1, "{text}");
    assert_eq!(count("takes only elementwise operations on scalars, and this operation is seen outside"), 1, "{text}");
}

#[test]
fn scanned_axis() {
    let text = problems(|| {
        let _ = tile(4, 8).cumsum(2);
    });
    assert_eq!(
        text,
        "\
<cumsum(2)>: `cumsum` along axis 2 of a tile of shape [4, 8]
  axes are counted from 0"
    );
}

#[test]
fn tiles_reduced_together_have_one_shape() {
    let text = problems(|| {
        let _ = ct::reduce((tile(4, 8), tile(4, 1)), 1, (0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    });
    assert_eq!(
        text,
        "\
<ct::reduce((tile(4, 8), tile(4, 1)), 1, (0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1))>: `reduce` of tiles with shapes [4, 8] and [4, 1]
  the shapes must be equal: use `broadcast_to`"
    );
}

#[test]
fn pieces_that_do_not_fit() {
    let text = problems(|| {
        let _ = ct::cat([tile(4, 8), tile(2, 8)], 1);
    });
    assert_eq!(
        text,
        "\
<ct::cat([tile(4, 8), tile(2, 8)], 1)>: `cat` along axis 1 of tiles with shapes [4, 8] and [2, 8]
  the extents of the other axes must be equal"
    );
    let text = problems(|| {
        let _ = ct::cat([tile(4, 8), tile(4, 4), tile(4, 2), tile(4, 1)], 1);
    });
    assert_eq!(
        text,
        "\
<ct::cat([tile(4, 8), tile(4, 4), tile(4, 2), tile(4, 1)], 1)>: `cat`: extent 15 of axis 1 in tile shape [4, 15]
  extents of tiles are sums of at most three powers of two: take 16 and let loads pad (stores drop what lies outside), or 14 and more tiles"
    );
    let text = problems(|| {
        let [_, _, _] = tile(4, 8).split(1);
    });
    assert_eq!(
        text,
        "\
<split(1)>: `split` into 3 parts along axis 1 of a tile of shape [4, 8]
  the number of parts divides the extent"
    );
    let text = problems(|| {
        let _ = tile(4, 8).extract([0, 3], [4, 4]);
    });
    assert_eq!(
        text,
        "\
<extract([0, 3], [4, 4])>: `extract`: number 3 along axis 1, where there are 2
  they are counted from 0"
    );
    let text = problems(|| {
        let _ = tile(4, 8).insert([0, 0], tile(4, 16));
    });
    assert_eq!(
        text,
        "\
<insert([0, 0], tile(4, 16))>: `insert`: parts of shape [4, 16] of a tile of shape [4, 8]
  each extent of the part divides that of the tile"
    );
}

#[test]
fn tables_of_another_length() {
    let text = problems(|| {
        let _ = ct::from_slice([4], &[1, 2, 3]);
    });
    assert_eq!(
        text,
        "\
<ct::from_slice([4], &[1, 2, 3])>: `from_slice`: 3 elements for a tile of shape [4]
  one element for each place, row-major"
    );
}

#[test]
fn vector_of_another_length() {
    let text = problems(|| {
        let _ = ct::matvec(tile(4, 8), tile(4, 1).squeeze(1));
    });
    assert_eq!(
        text,
        "\
<ct::matvec(tile(4, 8), tile(4, 1).squeeze(1))>: `matvec` of f32 [4, 8] and f32 [4]
  the vector is as long as the axis of the matrix that it meets: the last one in `matvec`, the first one in `vecmat`"
    );
}

#[test]
fn a_range_needs_its_axis() {
    let text = problems_with_arrays::<f32>(|x, _| {
        let rows = ct::arange(8, 0, 1);
        let _: Tile<f32, 1> = x.gather((rows, 0..64));
    });
    assert_eq!(
        text,
        "\
<gather((rows, 0..64))>: `gather`: the range in place 1 runs along axis 1, and the index tiles have 1 axis
  give the index tiles one more axis, of extent 1: `rows.unsqueeze(1)`"
    );
}

#[test]
fn index_and_value_do_not_fit() {
    let text = problems_with_arrays::<f32>(|_, y| {
        let rows = ct::arange(8, 0, 1).unsqueeze(1);
        y.scatter((rows, 0..64), tile(8, 32));
        let _ = y.atomic_add((rows, 0..4), tile(4, 4));
    });
    assert_eq!(
        text,
        "\
<scatter((rows, 0..64), tile(8, 32))>: `scatter`: these shapes do not go together: index [8, 1], index [1, 64], value [8, 32]
  extents must be equal or 1: use `reshape`, `unsqueeze` or `broadcast_to`
<atomic_add((rows, 0..4), tile(4, 4))>: `atomic_add`: these shapes do not go together: index [8, 1], index [1, 4], value [4, 4]
  extents must be equal or 1: use `reshape`, `unsqueeze` or `broadcast_to`"
    );
}

#[test]
fn a_latency_of_a_gather_is_small() {
    let text = problems_with_arrays::<f32>(|x, _| {
        let options = ct::GatherOptions::new().latency(11);
        let _: Tile<f32, 2> = x.gather_with((0..8, 0..8), options);
    });
    assert_eq!(
        text,
        "\
<gather_with((0..8, 0..8), options)>: `gather`: latency 11 is not between 1 and 10
  leave it out unless measurements ask for it"
    );
}

#[test]
fn reductions_into_arrays() {
    let text = problems_with_arrays(|_: Array<f32, 2>, out: ArrayMut<f32, 2>| {
        let ids = ct::arange(8, 0, 1);
        let tile = ct::zeros::<f32, 2>([8, 16]);
        out.atomic_store_add((ct::at(ids), ct::at(ids)), tile);
        out.atomic_store_max((0, ct::at(ids)), tile);
        out.tiles([8, 8]).order([0, 0]).atomic_store_add((0, 0), 1.0);
    });
    assert_eq!(
        text,
        "\
<atomic_store_add((ct::at(ids), ct::at(ids)), tile)>: `atomic_store_add`: components 0 and 1 are lists of positions
  one axis can be sparse; for pairs of positions: `gather`, `scatter`
<atomic_store_max((0, ct::at(ids)), tile)>: `atomic_store_max`: 8 positions for extent 16 of axis 1
  one position for each element of the tile along this axis
<atomic_store_add((0, 0), 1.0)>: `atomic_store_add`: order [0, 0] is not a permutation of the axes 0 to 1
  name each axis of the array once"
    );
}

#[test]
fn tables_of_arrays() {
    let a = ct::Device::cpu().zeros::<f32, 1>([4]).unwrap();
    let table = ct::ArrayTable::new(&[&a]).unwrap();
    let kernel = |x: ct::Arrays<f32, 1>| {
        let _ = x.get(ct::at(1)).load(0, [4]);
        let ids = ct::arange(4, 0, 1);
        let _ = x.get(ids).load(0, [4]);
        let _ = x.get(0).load(0, [4]).reduce(0, 0.0, |a, b| a + b + x.get(1).extent(0).cast::<f32>());
    };
    assert_eq!(
        with_source(&traced::problems(kernel, (&table,))),
        "\
<get(ct::at(1)).load(0, [4])>: `get`: this counts arrays, without `ct::at`
  write the number or scalar itself
<get(ids).load(0, [4])>: a tile of shape [4] where one value is wanted
  only a tile of one element converts to a scalar: reduce it first
<get(1).extent(0).cast::<f32>())>: the closure of `reduce` takes only elementwise operations on scalars, and this operation reads or writes memory
  compute it before, outside of the closure"
    );
}

#[test]
fn scratch_memory() {
    let text = problems(|| {
        let _ = ct::scratch::<f32, 2>([4, 0]);
        let _ = ct::scratch::<u8, 3>([1 << 10, 1 << 10, 1 << 10]);
    });
    assert_eq!(
        text,
        "\
<ct::scratch::<f32, 2>([4, 0])>: `scratch`: shape [4, 0]
  every extent is at least 1, and there are at most 2^24 elements
<ct::scratch::<u8, 3>([1 << 10, 1 << 10, 1 << 10])>: `scratch`: shape [1024, 1024, 1024]
  every extent is at least 1, and there are at most 2^24 elements"
    );
}

#[test]
fn large_scratch_memory_is_refused_where_there_is_none() {
    fn kernel(y: ArrayMut<f32, 1>) {
        let own = ct::scratch::<f32, 1>([1 << 16]);
        own.store(ct::bid(0), ct::full::<f32, 1>([256], 1.5));
        y.store(ct::bid(0), own.load(ct::bid(0), [256]));
    }
    match ct::code_ptx(kernel, (ct::ArraySpec::<f32, 1>::new([256]).mutable(),), ct::Target::SM_90A) {
        Err(ct::Error::Unsupported(problems)) => {
            assert_eq!(
                with_source(&problems[0].to_string()),
                "\
<ct::scratch::<f32, 1>([1 << 16])>: there is no room for 262144 bytes of a tile block's own in shared memory
  a tile block has 232448 bytes of it in all on sm_90a"
            );
        }
        other => panic!("an error, got {other:?}"),
    }
}

#[test]
fn indices_and_parts_of_arrays() {
    let text = problems_with_arrays(|a: Array<f32, 2>, out: ArrayMut<f32, 2>| {
        let ids = ct::arange(8, 0, 1);
        let _ = a.load((ct::at(ids), ct::at(ids)), [8, 8]);
        let _ = a.load((0, ct::at(ids)), [8, 16]);
        let _ = a.tiles([8, 8]).step([8, 0]).load((0, 0));
        let _ = a.slice(2, ..7);
        let _ = a.slice(0, ct::at(3)..ct::at(5));
        let _ = a.step(0, -1);
        let _ = a.swap_axes(0, 2);
        // What follows from a problem is silent.
        out.store((0, 0), out.index_axis(3, 0).reshape((4, 4)).load((0, 0), [4, 4]));
    });
    assert_eq!(
        text,
        "\
<load((ct::at(ids), ct::at(ids)), [8, 8])>: `load`: components 0 and 1 are lists of positions
  one axis can be sparse; for pairs of positions: `gather`, `scatter`
<load((0, ct::at(ids)), [8, 16])>: `load`: 8 positions for extent 16 of axis 1
  one position for each element of the tile along this axis
<load((0, 0))>: `load`: a step of 0 along axis 1
  tiles begin every so many elements: at least 1, less than 2^31
<slice(2, ..7)>: `slice`: axis 2 of an array with 2 axes
  axes are counted from 0
<slice(0, ct::at(3)..ct::at(5))>: `slice`: this counts elements, also without `ct::at`
  write the number or scalar itself
<step(0, -1)>: `step`: a step of -1 along axis 0
  every how many elements: at least 1
<swap_axes(0, 2)>: `swap_axes`: axes 0 and 2 of an array with 2 axes
  axes are counted from 0
<index_axis(3, 0).reshape((4, 4)).load((0, 0), [4, 4]))>: `index_axis`: axis 3 of an array with 2 axes
  axes are counted from 0"
    );
}

#[test]
fn pointers_do_not_fit() {
    let text = problems_with_arrays::<f32>(|x, _| {
        let p = x.pointer();
        // SAFETY: nothing runs.
        unsafe {
            let columns = p.offset(ct::arange(8, 0i64, 1).unsqueeze(0));
            let _ = columns.offset(ct::zeros::<i32, 2>([8, 4]));
            columns.store(tile(8, 4));
            let _ = p.array::<2>((4, ct::at(3)), (3, 1));
            let _ = p.array_mut::<2>([4, -1], [3, 1]);
            let _ = p.array::<2>([4, 4], [-4, 1]);
            let _ = tile(8, 4).reduce(0, 0.0, |a, _| a + p.load());
            let inside = std::cell::Cell::new(p);
            ct::for_each(0..4, (), |i, ()| inside.set(p.offset(i)));
            let _ = inside.get().load();
        }
    });
    assert_eq!(
        text,
        "\
<offset(ct::zeros::<i32, 2>([8, 4]))>: `offset`: these shapes do not go together: pointers [1, 8], offset [8, 4]
  extents must be equal or 1: use `reshape`, `unsqueeze` or `broadcast_to`
<store(tile(8, 4))>: `store`: these shapes do not go together: pointers [1, 8], value [8, 4]
  extents must be equal or 1: use `reshape`, `unsqueeze` or `broadcast_to`
<array::<2>((4, ct::at(3)), (3, 1))>: `array`: this counts elements, also without `ct::at`
  write the number or scalar itself
<array_mut::<2>([4, -1], [3, 1])>: `array_mut`: extent -1 of axis 1
  extents and strides are not negative; they count elements
<array::<2>([4, 4], [-4, 1])>: `array`: stride -4 of axis 0
  extents and strides are not negative; they count elements
<load())>: the closure of `reduce` takes only elementwise operations on scalars, and this operation reads or writes memory
  compute it before, outside of the closure
<load()>: this value belongs to the body of `for_each` and is used outside of it
  <offset(i)))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn tiles_of_packed_arrays_hold_whole_bytes_and_are_counted() {
    fn kernel(x: ct::PackedArray<ct::u3, 2>, y: ct::PackedArrayMut<ct::i4, 2>) {
        let _ = x.load((0, 0), [4, 4]).cast::<f16>();
        let _ = x.load((ct::at(3), ct::at(8)), [4, 32]).cast::<f16>();
        y.store((0, 0), ct::zeros::<f32, 2>([4, 1]).cast_narrow());
    }
    let (x, y) = (ct::PackedSpec::new([64, 64]), ct::PackedSpec::new([64, 64]).mutable());
    let text = with_source(&traced::problems(kernel, (x, y)));
    assert_eq!(
        text,
        "\
<load((0, 0), [4, 4]).cast::<f16>()>: `load`: rows of 4 elements of u3 are no whole bytes
  the last extent of tile shape [4, 4] has to be a multiple of 8
<load((ct::at(3), ct::at(8)), [4, 32]).cast::<f16>()>: `load`: `ct::at` along axis 1, in which elements of u3 share bytes
  along the last axis of a packed array an index counts tiles
<store((0, 0), ct::zeros::<f32, 2>([4, 1]).cast_narrow())>: `store`: rows of 1 elements of i4 are no whole bytes
  the last extent of tile shape [4, 1] has to be a multiple of 2"
    );
}
