//! Loads, stores and other accesses to memory.

use cutlet as ct;
use cutlet::prelude::*;

use crate::traced;
use crate::{problems, problems_with_arrays, tile, with_source};

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
        let _ = a.load([ct::arange(0..4), ct::arange(0..1)], [8, 8]);
    });
    assert_eq!(
        text,
        "\
<load([ct::arange(0..4), ct::arange(0..1)], [8, 8])>: a tile of shape [4] where one value is wanted
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
fn array_axis() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = a.extent(2);
        let _ = a.num_tiles(3, [8, 8]);
    });
    assert_eq!(
        text,
        "\
<extent(2)>: `extent`: axis 2 of an array with 2 axes
  axes are counted from 0; -1 is the last one
<num_tiles(3, [8, 8])>: `num_tiles`: axis 3 of an array with 2 axes
  axes are counted from 0; -1 is the last one"
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
fn a_range_needs_its_axis() {
    let text = problems_with_arrays::<f32>(|x, _| {
        let rows = ct::arange(0..8);
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
        let rows = ct::arange(0..8).unsqueeze(1);
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
        let ids = ct::arange(0..8);
        let tile = ct::zeros::<f32, 2>([8, 16]);
        out.atomic_store_add((ct::at(ids), ct::at(ids)), tile);
        out.atomic_store_max((0, ct::at(ids)), tile);
        out.tiled([8, 8]).order([0, 0]).atomic_store_add((0, 0), 1.0);
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
        let ids = ct::arange(0..4);
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
    match ct::inspect(kernel, (ct::ArraySpec::<f32, 1>::new([256]).mutable(),)).target(ct::Target::SM_90A).ptx() {
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
        let ids = ct::arange(0..8);
        let _ = a.load((ct::at(ids), ct::at(ids)), [8, 8]);
        let _ = a.load((0, ct::at(ids)), [8, 16]);
        let _ = a.tiled([8, 8]).step([8, 0]).load((0, 0));
        let _ = a.slice(2, ..7);
        let _ = a.slice(0, ct::at(3)..ct::at(5));
        let _ = a.step(0, -1);
        let _ = a.swap_axes(0, 2);
        // Consequential problems are not reported.
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
  axes are counted from 0; -1 is the last one
<slice(0, ct::at(3)..ct::at(5))>: `slice`: this counts elements, also without `ct::at`
  write the number or scalar itself
<step(0, -1)>: `step`: a step of -1 along axis 0
  every how many elements: at least 1
<swap_axes(0, 2)>: `swap_axes`: axes 0 and 2 of an array with 2 axes
  axes are counted from 0; -1 is the last one
<index_axis(3, 0).reshape((4, 4)).load((0, 0), [4, 4]))>: `index_axis`: axis 3 of an array with 2 axes
  axes are counted from 0; -1 is the last one"
    );
}

#[test]
fn pointers_do_not_fit() {
    let text = problems_with_arrays::<f32>(|x, _| {
        let p = x.pointer();
        // SAFETY: nothing runs.
        unsafe {
            let columns = p.offset(ct::arange_from(8, 0i64, 1).unsqueeze(0));
            let _ = columns.offset(ct::zeros::<i32, 2>([8, 4]));
            columns.store(tile(8, 4));
            let _ = p.array::<2>((4, ct::at(3)), (3, 1));
            let _ = p.array_mut::<2>([4, -1], [3, 1]);
            let _ = p.array::<2>([4, 4], [-4, 1]);
            let _ = tile(8, 4).reduce(0, 0.0, |a, _| a + p.load());
            let inside = std::cell::Cell::new(p);
            ct::fold(0..4, (), |(), i| inside.set(p.offset(i)));
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
<load()>: this value belongs to the body of `fold` and is used outside of it
  <offset(i)))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn tiles_of_packed_arrays_hold_whole_bytes_and_are_counted() {
    fn kernel(x: ct::packed::PackedArray<ct::packed::u3, 2>, y: ct::packed::PackedArrayMut<ct::packed::i4, 2>) {
        let _ = x.load((0, 0), [4, 4]).cast::<f16>();
        let _ = x.load((ct::at(3), ct::at(8)), [4, 32]).cast::<f16>();
        y.store((0, 0), ct::zeros::<f32, 2>([4, 1]).cast_narrow());
    }
    let (x, y) = (ct::packed::PackedSpec::new([64, 64]), ct::packed::PackedSpec::new([64, 64]).mutable());
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
