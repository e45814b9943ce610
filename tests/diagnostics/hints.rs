//! Layouts of tiles and hints of loops that are none.

use cutlet as ct;
use cutlet::layout::{Layout, local, spatial};

use super::{problems, tile};

#[test]
fn layouts_of_other_shapes() {
    let text = problems(|| {
        let _ = tile(32, 16).with_layout(spatial([32, 4]) * local([1, 2]));
        let _ = tile(8, 16).with_layout(spatial([16, 8]));
        let _ = tile(8, 16).with_layout(spatial([128]));
        let _ = tile(8, 16).with_layout(local([1 << 40, 1 << 40]));
        let _ = tile(8, 16).with_layout(spatial([1 << 20, 1 << 20]));
    });
    assert_eq!(
        text,
        "\
<with_layout(spatial([32, 4]) * local([1, 2]))>: `with_layout`: a layout of [32, 8] for a tile of shape [32, 16]
  the extents of the factors of a layout multiply to those of the tile: `ct::layout::local([1, 2]) * layout` fits
<with_layout(spatial([16, 8]))>: `with_layout`: a layout of [16, 8] for a tile of shape [8, 16]
  the extents of the factors of a layout multiply to those of the tile
<with_layout(spatial([128]))>: `with_layout`: a layout of [128] for a tile of shape [8, 16]
  the extents of the factors of a layout multiply to those of the tile
<with_layout(local([1 << 40, 1 << 40]))>: `with_layout`: a layout of [1099511627776, 1099511627776] for a tile of shape [8, 16]
  the extents of the factors of a layout multiply to those of the tile
<with_layout(spatial([1 << 20, 1 << 20]))>: `with_layout`: a layout of [1048576, 1048576] for a tile of shape [8, 16]
  the extents of the factors of a layout multiply to those of the tile"
    );
}

#[test]
fn layouts_for_threads_that_no_tile_block_has() {
    let text = problems(|| {
        let _ = tile(8, 16).with_layout(spatial([8, 1]) * local([1, 16]));
        let _ = tile(64, 32).with_layout(spatial([64, 32]));
        let _ = tile(24, 16).with_layout(local([8, 2]) * spatial([3, 8]));
        let _ = tile(8, 16).with_layout(spatial([8, 16]).replicate(1 << 62));
    });
    assert_eq!(
        text,
        "\
<with_layout(spatial([8, 1]) * local([1, 16]))>: `with_layout`: a layout for 8 threads
  a warp has 32: replicas of the threads, `.replicate(4)`, or fewer elements in `local`
<with_layout(spatial([64, 32]))>: `with_layout`: a layout for 2048 threads
  a tile block has 1024 threads at most: more elements in `local`
<with_layout(local([8, 2]) * spatial([3, 8]))>: `with_layout`: a layout for 24 threads
  a tile block has 32 to 1024 threads, a power of two
<with_layout(spatial([8, 16]).replicate(1 << 62))>: `with_layout`: a layout for 9223372036854775807 threads
  a tile block has 1024 threads at most: more elements in `local`"
    );
}

#[test]
fn layouts_for_different_numbers_of_threads() {
    let text = problems(|| {
        let _ = tile(8, 16).with_layout(spatial([8, 16]));
        let _ = tile(8, 16).with_layout(spatial([8, 8]) * local([1, 2]));
        let _ = tile(16, 16).with_layout((spatial([8, 8]) * local([2, 2])).replicate(2));
        let _ = tile(16, 16).with_layout(spatial([16, 16]));
    });
    assert_eq!(
        text,
        "\
<with_layout(spatial([8, 8]) * local([1, 2]))>: `with_layout`: a layout for 64 threads, where another one is for 128
  <with_layout(spatial([8, 16]))>: the other one
  a tile block has one number of threads: `.replicate(2)` of the layout for 64 is for 128
<with_layout(spatial([16, 16]))>: `with_layout`: a layout for 256 threads, where another one is for 128
  <with_layout(spatial([8, 16]))>: the other one
  a tile block has one number of threads: `.replicate(2)` of the layout for 128 is for 256"
    );
}

#[test]
fn layouts_that_are_none_of_bits() {
    let text = problems(|| {
        let _ = tile(12, 32).with_layout(local([12, 1]) * spatial([1, 32]));
        // Elements 32 to 63 are nowhere; a lane changes two bits at once.
        let _ = tile(8, 8).with_layout(Layout::new([8, 8], vec![], vec![1, 2, 4, 8, 16], vec![]));
        let _ = tile(8, 8).with_layout(Layout::new([8, 8], vec![32], vec![3, 2, 4, 8, 16], vec![]));
    });
    assert_eq!(
        text,
        "\
<with_layout(local([12, 1]) * spatial([1, 32]))>: `with_layout`: a layout of [12, 32] for 32 threads is not a linear map of index bits
  extents of `local` and `spatial` and numbers of replicas are powers of two, and each bit of a thread or register index is one bit of the element index
<with_layout(Layout::new([8, 8], vec![], vec![1, 2, 4, 8, 16], vec![]))>: `with_layout`: a layout of [8, 8] for 32 threads is not a linear map of index bits
  extents of `local` and `spatial` and numbers of replicas are powers of two, and each bit of a thread or register index is one bit of the element index
<with_layout(Layout::new([8, 8], vec![32], vec![3, 2, 4, 8, 16], vec![]))>: `with_layout`: a layout of [8, 8] for 32 threads is not a linear map of index bits
  extents of `local` and `spatial` and numbers of replicas are powers of two, and each bit of a thread or register index is one bit of the element index"
    );
}

#[test]
fn within_a_closure_for_scalars() {
    let text = problems(|| {
        let whole = tile(8, 16);
        let _ = ct::reduce(whole, 1, 0.0, |a, b| {
            let _ = whole.with_layout(spatial([8, 16]));
            a + b
        });
    });
    assert_eq!(
        text,
        "\
<with_layout(spatial([8, 16]))>: the closure of `reduce` takes only elementwise operations on scalars, and this operation works on tiles
  compute it before, outside of the closure"
    );
}

#[test]
fn hints_of_nothing() {
    let text = problems(|| {
        ct::fold(ct::range(0, 4).num_stages(0), (), |(), _| ());
        ct::fold(ct::range(0, 4).unroll(0).pingpong(true).warp_specialize(true), (), |(), _| ());
    });
    assert_eq!(
        text,
        "\
<ct::fold(ct::range(0, 4).num_stages(0), (), |(), _| ())>: `fold`: the hint `num_stages` of the range is 0
  1 is the least; without the hint the compiler chooses
<ct::fold(ct::range(0, 4).unroll(0).pingpong(true).warp_specialize(true), (), |(), _| ())>: `fold`: the hint `unroll` of the range is 0
  1 is the least; without the hint the compiler chooses"
    );
}
