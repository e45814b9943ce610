//! Shapes and axes of tiles.

use cutlet as ct;
use cutlet::prelude::*;

use crate::{problems, problems_with_arrays, tile};

#[test]
fn ranks_do_not_fit() {
    let text = problems_with_arrays(|a: Array<f32, 2>, c| {
        let _ = a.load((0, 0), [2, 4, 8]);
        let _ = a.load((0, 0), [1, 4, 1]);
        c.store((0, 0), a.load((0, 0), [64]).reshape([4, 4, 4]).with_rank());
        let _ = ct::zeros::<f32, 1>([8]) + tile(4, 16);
    });
    assert_eq!(
        text,
        "<load((0, 0), [2, 4, 8])>: `load` of shape [2, 4, 8], where 2 axes are wanted\n  \
           only axes of extent 1 come and go: `.reshape(..)`, `.sum(axis)`\n\
         <load((0, 0), [1, 4, 1])>: `load` of shape [1, 4, 1], where 2 axes are wanted\n  \
           it is open which axes of extent 1 go: `.squeeze(axis)`, `.reshape(..)`\n\
         <with_rank())>: `with_rank` of shape [4, 4, 4], where 2 axes are wanted\n  \
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
        let _ = ct::arange(0..0);
    });
    assert_eq!(
        text,
        "\
<ct::arange(0..0)>: `arange` of the empty range 0..0
  a tile has at least one element"
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
  axes are counted from 0; -1 is the last one"
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
  axes are counted from 0; -1 is the last one"
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
fn scanned_axis() {
    let text = problems(|| {
        let _ = tile(4, 8).cumsum(2);
    });
    assert_eq!(
        text,
        "\
<cumsum(2)>: `cumsum` along axis 2 of a tile of shape [4, 8]
  axes are counted from 0; -1 is the last one"
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
