//! Exact mode: kernels for one formula store equal bits for all tiles, splits and orders, and a
//! fault of one term changes the bits.
//!
//! Each test runs on the cpu back end, and on a GPU if one is present: through PTX, and through
//! Tile IR if `tileiras` or the driver compiles it.

mod attention;
mod faults;
mod launches;
mod operations;
mod products;
mod sums;

use cutlet as ct;
use cutlet::element::Element;

/// Devices and back ends of the tests.
fn places() -> Vec<(ct::Device, ct::Backend)> {
    let mut places = vec![(ct::Device::cpu(), ct::Backend::Cpu)];
    if ct::Device::num_gpus() > 0 {
        let gpu = ct::Device::gpu(0).expect("a GPU");
        places.push((gpu, ct::Backend::Ptx));
        if std::env::var_os("CUTLET_SUITE_TILEIR").is_some() {
            places.push((gpu, ct::Backend::TileIr));
        }
    }
    places
}

/// A launch in exact mode.
fn exact(grid: impl ct::IntoGrid, backend: ct::Backend) -> ct::Launch<'static> {
    ct::Launch::new(grid).backend(backend).exact()
}

/// Bit patterns of an array.
fn bits<T: Element, const R: usize>(array: &ct::DeviceArray<T, R>) -> ct::Result<Vec<u64>> {
    Ok(array.to_vec()?.into_iter().map(Element::to_bits).collect())
}

/// A number without a pattern, from -1 to 1.
fn noise(at: usize, way: u64) -> f32 {
    let mut x = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(way << 32);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

/// Checks that all results are those of the first place and form, with the names of those that
/// differ.
fn assert_equal(results: &[(String, Vec<u64>)]) {
    let (first, expected) = &results[0];
    assert!(expected.iter().any(|&word| word != expected[0]), "{first}: all elements are equal");
    for (name, result) in results {
        let differing = expected.iter().zip(result).filter(|(a, b)| a != b).count();
        assert!(
            result.len() == expected.len() && differing == 0,
            "{name} differs from {first} in {differing} of {} elements",
            expected.len()
        );
    }
}
