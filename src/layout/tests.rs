//! Tests of the algebraic laws of layouts in mode form, on random layouts.

use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

use super::SpatialMode::{Mode, Replicas};
use super::{Modes, auto_local_spatial, local, spatial};

/// Number of random layouts, each with at most a few hundred positions.
const CASES: u64 = 300;

/// Checks a law for many seeds.
fn law(check: impl Fn(&mut SmallRng)) {
    (0..CASES).for_each(|seed| check(&mut SmallRng::seed_from_u64(seed)));
}

/// Makes a layout of a rank: random modes in random order over threads and registers, sometimes
/// with replicas.
fn any(rng: &mut SmallRng, rank: usize) -> Modes {
    let mode = |rng: &mut SmallRng| *[1, 2, 2, 3].choose(rng).unwrap();
    let mode_shape: Vec<Vec<i64>> =
        (0..rank).map(|_| (0..rng.random_range(1..=2)).map(|_| mode(rng)).collect()).collect();
    let mut order: Vec<usize> = (0..mode_shape.concat().len()).collect();
    order.shuffle(rng);
    let local = order.split_off(rng.random_range(0..=order.len()));
    let mut spatial: Vec<_> = order.into_iter().map(Mode).collect();
    if rng.random_bool(0.4) {
        let place = rng.random_range(0..=spatial.len());
        spatial.insert(place, Replicas(rng.random_range(1..=3)));
    }
    let slices: Vec<&[i64]> = mode_shape.iter().map(Vec::as_slice).collect();
    Modes::new(&slices, spatial, local).unwrap()
}

/// Returns the element at each position: the definition of a layout.
fn table(layout: &Modes) -> Vec<Vec<Vec<i64>>> {
    let registers =
        |thread| (0..layout.num_registers()).map(move |register| layout.coordinates(thread, register)).collect();
    (0..layout.num_threads()).map(registers).collect()
}

fn flat(coordinates: &[i64], shape: &[i64]) -> i64 {
    coordinates.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c)
}

fn elements(shape: &[i64]) -> Vec<Vec<i64>> {
    shape.iter().fold(vec![vec![]], |all, &extent| {
        all.iter().flat_map(|start| (0..extent).map(move |c| [&start[..], &[c]].concat())).collect()
    })
}

fn permutation(rng: &mut SmallRng, rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    order.shuffle(rng);
    order
}

#[test]
fn places_are_the_inverse_of_coordinates() {
    law(|rng| {
        let layout = any(rng, 2);
        let mut all = Vec::new();
        for element in elements(layout.shape()) {
            let places = layout.places(&element);
            assert!(places.is_sorted());
            assert!(places.iter().all(|&(thread, register)| layout.coordinates(thread, register) == element));
            all.extend(places);
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as i64, layout.num_threads() * layout.num_registers(), "{layout}");
        assert!(layout.places(&[-1, 0]).is_empty() && layout.places(&[0]).is_empty());
    });
}

#[test]
fn equal_layouts_have_equal_tables() {
    law(|rng| {
        let (a, b) = (any(rng, 1), any(rng, 1));
        let same = a.shape() == b.shape() && table(&a) == table(&b);
        assert_eq!(a == b, same, "{a}{b}");
        let canonical = a.canonical();
        assert_eq!(table(&canonical), table(&a));
        assert_eq!(canonical.canonical().mode_shape(), canonical.mode_shape());
    });
}

#[test]
fn a_product_puts_a_tile_in_the_place_of_each_element() {
    law(|rng| {
        let (outer, inner) = (any(rng, 2), any(rng, 2));
        let product = outer.product(&inner).unwrap();
        let (threads, registers) = (inner.num_threads(), inner.num_registers());
        assert_eq!(
            product.num_threads() * product.num_registers(),
            outer.num_threads() * threads * outer.num_registers() * registers
        );
        for thread in 0..product.num_threads() {
            for register in 0..product.num_registers() {
                let far = outer.coordinates(thread / threads, register / registers);
                let near = inner.coordinates(thread % threads, register % registers);
                let want: Vec<i64> = (0..2).map(|axis| far[axis] * inner.shape()[axis] + near[axis]).collect();
                assert_eq!(product.coordinates(thread, register), want);
            }
        }
        assert!(outer.product(&any(rng, 1)).is_none());
    });
}

#[test]
fn products_are_associative_with_a_unit() {
    law(|rng| {
        let (a, b, c) = (any(rng, 2), any(rng, 2), any(rng, 2));
        assert_eq!((a.clone() * b.clone()) * c.clone(), a.clone() * (b * c));
        assert_eq!(a.clone() * local([1, 1]), a);
        assert_eq!(spatial([1, 1]) * a.clone(), a);
    });
}

#[test]
fn quotients_undo_products() {
    law(|rng| {
        let (a, b) = (any(rng, 2), any(rng, 2));
        assert_eq!((a.clone() * b.clone()).divide(&b), Some(a.clone()), "{a}{b}");
        if let Some(quotient) = a.divide(&b) {
            assert_eq!(quotient * b, a);
        }
        assert_eq!(a.divide(&local([1, 1])), Some(a.clone()));
        assert_eq!(a.divide(&a), Some(local([1, 1])));
    });
}

#[test]
fn there_is_no_quotient_where_none_can_be() {
    // The simplest candidates have no quotient then.
    law(|rng| {
        let (a, b) = (any(rng, 1), any(rng, 1));
        let extent = a.shape()[0] / b.shape()[0].max(1);
        if a.divide(&b).is_none() {
            let tries = [local([extent.max(1)]), spatial([extent.max(1)])];
            for outer in tries.iter().flat_map(|one| [one.clone(), one.clone().replicate(2), one.clone().replicate(3)])
            {
                assert_ne!(outer * b.clone(), a);
            }
        }
    });
}

#[test]
fn permutations_compose_and_keep_products() {
    law(|rng| {
        let (a, b, p, q) = (any(rng, 3), any(rng, 3), permutation(rng, 3), permutation(rng, 3));
        let both: Vec<usize> = q.iter().map(|&axis| p[axis]).collect();
        let permuted = a.permute(&p).unwrap();
        assert_eq!(permuted.permute(&q).unwrap(), a.permute(&both).unwrap());
        assert_eq!((a.clone() * b.clone()).permute(&p).unwrap(), permuted.clone() * b.permute(&p).unwrap());
        for (thread, row) in table(&a).iter().enumerate() {
            for (register, old) in row.iter().enumerate() {
                let want: Vec<i64> = p.iter().map(|&axis| old[axis]).collect();
                assert_eq!(permuted.coordinates(thread as i64, register as i64), want);
            }
        }
    });
}

#[test]
fn reshapes_keep_the_order_of_elements() {
    law(|rng| {
        let layout = any(rng, 3);
        let size: i64 = layout.shape().iter().product();
        let divisors: Vec<i64> = (1..=size).filter(|n| size % n == 0).collect();
        let first = *divisors.choose(rng).unwrap();
        let Some(reshaped) = layout.reshape(&[first, size / first]) else { return };
        for (thread, row) in table(&layout).iter().enumerate() {
            for (register, old) in row.iter().enumerate() {
                let new = reshaped.coordinates(thread as i64, register as i64);
                assert_eq!(flat(&new, reshaped.shape()), flat(old, layout.shape()));
            }
        }
        assert_eq!(reshaped.reshape(layout.shape()), Some(layout.clone()), "merging and splitting go back");
        assert!(layout.reshape(&[size + 1]).is_none());
    });
}

#[test]
fn flattening_is_a_reshape_of_any_layout() {
    law(|rng| {
        let layout = any(rng, 3);
        let [a, b, c] = layout.shape() else { unreachable!() };
        assert_eq!(layout.flatten(..), layout.reshape(&[a * b * c]));
        assert_eq!(layout.flatten(1..), layout.reshape(&[*a, b * c]));
        assert_eq!(layout.flatten(0..=1), layout.reshape(&[a * b, *c]));
        assert!(layout.flatten(..).is_some());
        assert!(layout.flatten(1..1).is_none() && layout.flatten(2..4).is_none());
        let (left, right) = (any(rng, 1), any(rng, 2));
        assert_eq!(left.concat(&right).flatten(1..).unwrap(), left.concat(&right.flatten(..).unwrap()));
    });
}

#[test]
fn axes_of_extent_one_are_added_and_removed() {
    law(|rng| {
        let layout = any(rng, 2);
        for axes in [&[0][..], &[2], &[1, 3], &[2, 0]] {
            let more = layout.unsqueeze(axes).unwrap();
            assert!(axes.iter().all(|&axis| more.shape()[axis] == 1));
            assert_eq!(more.squeeze(axes), Some(layout.clone()));
        }
        assert!(layout.unsqueeze(&[3]).is_none() && layout.unsqueeze(&[0, 0]).is_none());
        let ones: Vec<usize> = (0..2).filter(|&axis| layout.shape()[axis] == 1).collect();
        assert_eq!(layout.squeeze(&[0]).is_some(), ones.contains(&0));
        assert!(layout.squeeze(&[2]).is_none());
    });
}

#[test]
fn reductions_hold_in_any_order_and_in_factors() {
    law(|rng| {
        let (a, b) = (any(rng, 3), any(rng, 3));
        let axes: Vec<usize> = (0..3).filter(|_| rng.random_bool(0.5)).collect();
        let reduced = a.reduce(&axes).unwrap();
        let one_by_one = axes.iter().rev().fold(a.clone(), |layout, &axis| layout.reduce(&[axis]).unwrap());
        assert_eq!(reduced, one_by_one);
        let product = a.clone() * b.clone();
        assert_eq!(product.reduce(&axes).unwrap(), reduced.clone() * b.reduce(&axes).unwrap());
        assert_eq!(a.reduce_away(&axes), reduced.squeeze(&axes));
        // The threads with an element of a row have the result of the row.
        for element in elements(reduced.shape()) {
            let mut threads: Vec<i64> = reduced.places(&element).into_iter().map(|(thread, _)| thread).collect();
            let behind = |other: &Vec<i64>| (0..3).all(|axis| axes.contains(&axis) || other[axis] == element[axis]);
            let mut want: Vec<i64> = elements(a.shape())
                .iter()
                .filter(|other| behind(other))
                .flat_map(|other| a.places(other))
                .map(|(thread, _)| thread)
                .collect();
            [&mut threads, &mut want].into_iter().for_each(|list| {
                list.sort_unstable();
                list.dedup();
            });
            assert_eq!(threads, want);
        }
        assert!(a.reduce(&[3]).is_none() && a.reduce(&[1, 1]).is_none());
    });
}

#[test]
fn concatenations_are_products_of_other_axes() {
    law(|rng| {
        let (a, b, c) = (any(rng, 1), any(rng, 2), any(rng, 1));
        assert_eq!(a.concat(&b).concat(&c), a.concat(&b.concat(&c)));
        assert_eq!(a.concat(&b), a.unsqueeze(&[1, 2]).unwrap() * b.unsqueeze(&[0]).unwrap());
    });
}

#[test]
fn the_parts_of_a_layout_define_it() {
    law(|rng| {
        let layout = any(rng, 2).canonical();
        let mut rest = layout.mode_shape();
        let cut = layout.shape().iter().map(|&extent| {
            let count = (0..=rest.len()).find(|&n| rest[..n].iter().product::<i64>() == extent).unwrap();
            let (own, others) = rest.split_at(count);
            rest = others;
            own
        });
        let cut: Vec<&[i64]> = cut.collect();
        let again = Modes::new(&cut, layout.spatial_modes().to_vec(), layout.local_modes().to_vec()).unwrap();
        assert_eq!(again, layout);
    });
}

#[test]
fn threads_are_found_for_a_shape() {
    law(|rng| {
        let shape: Vec<i64> = (0..rng.random_range(1..=3)).map(|_| rng.random_range(1..=8)).collect();
        let (size, threads): (i64, i64) = (shape.iter().product(), rng.random_range(1..=64));
        let layout = auto_local_spatial(threads, &shape);
        assert_eq!(layout.is_some(), size % threads == 0 || threads % size == 0);
        let Some(layout) = layout else { return };
        assert_eq!((layout.shape(), layout.num_threads()), (&shape[..], threads));
        assert_eq!(layout.num_registers(), (size / threads).max(1));
        let copies = (threads / size).max(1) as usize;
        assert!(elements(&shape).iter().all(|element| layout.places(element).len() == copies));
    });
}

/// The example of the documentation: thread (i / 2) · 3 + j / 2, register (j % 2) · 2 + i % 2.
#[test]
fn modes_count_in_their_order() {
    let layout = Modes::new(&[&[2, 2], &[3, 2]], vec![Mode(0), Mode(2)], vec![3, 1]).unwrap();
    for i in 0..4 {
        for j in 0..6 {
            assert_eq!(layout.places(&[i, j]), [((i / 2) * 3 + j / 2, (j % 2) * 2 + i % 2)]);
        }
    }
}

#[test]
fn more_elements_than_u32_counts() {
    use super::{Layout, column_spatial};
    // 2^32 elements and more, in as many registers or threads, up to numbers that exceed i64.
    for extents in [[1i64 << 16, 1 << 16], [1 << 20, 1 << 20], [1 << 40, 1 << 40], [1 << 62, 1 << 62]] {
        assert!(local(extents).to_layout(1).is_none() && spatial(extents).to_layout(1 << 20).is_none());
        let (registers, threads) = (local(extents), spatial(extents));
        let wanted = extents[0].checked_mul(extents[1]).unwrap_or(i64::MAX);
        assert_eq!((registers.num_registers(), threads.num_threads()), (wanted, wanted));
        assert_eq!((registers.num_threads(), threads.num_registers()), (1, 1));
        assert_eq!(threads.clone().replicate(1 << 62).num_threads(), i64::MAX);
        let countable = wanted < i64::MAX;
        assert_eq!(registers.reshape(&[extents[1], extents[0]]).is_some(), countable);
        assert_eq!(threads.flatten(..).is_some(), countable);
        // Their picture has no cells.
        assert!(
            registers.to_string().ends_with("(more than 1048576 cells)\n") && !registers.to_svg().contains("<rect")
        );
        assert_eq!((registers.clone() * spatial([1, 1])).divide(&spatial([1, 1])).is_some(), countable);
    }
    assert!(local([1 << 40]).product(&spatial([1 << 40])).is_none());
    assert_eq!(local([1 << 31]).to_layout(1).unwrap().num_elements(), 1 << 31);
    assert_eq!(column_spatial([2, 4]).replicate(4).replicate(1 << 62).canonical().num_threads(), i64::MAX);
    let many = Layout::replicated(&[1 << 16], 1);
    assert!(many.compose(&many).is_none() && many.concat(&Layout::replicated(&[1 << 15], 1)).is_some());
    assert!(spatial([1]).to_layout(1 << 27).is_none());
    assert!(!Layout::replicated(&[1 << 31], 1).to_svg().contains("<rect"));
}
