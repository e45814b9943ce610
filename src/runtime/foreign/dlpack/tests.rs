//! Tests of imported tensors, which are made by hand, and of exported ones.

use std::mem::{offset_of, size_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::element::{bf16, f4e2m1fn, f8e5m2, f16};
use crate::runtime::Device;

/// A tensor of another library: 3 x 4 numbers after 8 unrelated bytes.
struct Theirs {
    managed: ManagedTensor,
    data: Vec<i32>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    deleted: Arc<AtomicUsize>,
}

unsafe extern "C" fn delete_theirs(tensor: *mut ManagedTensor) {
    // SAFETY: made by `theirs`, deleted once.
    let theirs = unsafe { Box::from_raw((*tensor).context.cast::<Theirs>()) };
    theirs.deleted.fetch_add(1, Ordering::Relaxed);
    assert_eq!((theirs.data[0], theirs.shape.len()), (-1, theirs.managed.tensor.rank as usize));
    drop(theirs.strides);
}

fn theirs(shape: &[i64], strides: Option<&[i64]>) -> (*mut ManagedTensor, Arc<AtomicUsize>) {
    let deleted = Arc::new(AtomicUsize::new(0));
    let none = std::ptr::null_mut();
    let tensor = Tensor {
        data: none,
        device: TensorDevice { kind: CPU, ordinal: 0 },
        rank: shape.len() as i32,
        dtype: TensorType { code: 0, bits: 32, lanes: 1 },
        shape: none.cast(),
        strides: none.cast(),
        byte_offset: 8,
    };
    let theirs = Box::into_raw(Box::new(Theirs {
        managed: ManagedTensor { tensor, context: none, deleter: Some(delete_theirs) },
        data: [-1, -1].into_iter().chain(0..12).collect(),
        shape: shape.to_vec(),
        strides: strides.unwrap_or_default().to_vec(),
        deleted: deleted.clone(),
    }));
    // SAFETY: just made.
    unsafe {
        let it = &mut *theirs;
        it.managed.context = theirs.cast();
        it.managed.tensor.data = it.data.as_mut_ptr().cast();
        it.managed.tensor.shape = it.shape.as_mut_ptr();
        if strides.is_some() {
            it.managed.tensor.strides = it.strides.as_mut_ptr();
        }
        (&raw mut (*theirs).managed, deleted)
    }
}

/// Asserts that `import` rejects a valid tensor after `change`, and that the caller still owns it.
#[track_caller]
fn refused<T: Element, const R: usize>(change: impl FnOnce(&mut Tensor), part: &str) {
    let (tensor, deleted) = theirs(&[3, 4], Some(&[4, 1]));
    // SAFETY: alive; the import is rejected, so it is deleted here.
    unsafe {
        let good = (*tensor).tensor;
        change(&mut (*tensor).tensor);
        let text = import::<T, R>(tensor, &Device::cpu().default_stream()).expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
        assert_eq!(deleted.load(Ordering::Relaxed), 0);
        (*tensor).tensor = good;
        delete_theirs(tensor);
    }
}

#[test]
fn structures_are_those_of_the_header() {
    assert_eq!((size_of::<Tensor>(), size_of::<ManagedTensor>()), (48, 64));
    assert_eq!((offset_of!(Tensor, device), offset_of!(Tensor, rank), offset_of!(Tensor, dtype)), (8, 16, 20));
    assert_eq!((offset_of!(Tensor, shape), offset_of!(Tensor, strides), offset_of!(Tensor, byte_offset)), (24, 32, 40));
    assert_eq!((offset_of!(ManagedTensor, context), offset_of!(ManagedTensor, deleter)), (48, 56));
}

#[test]
fn tensors_are_imported_and_released_once() -> Result<()> {
    let stream = Device::cpu().default_stream();
    for (strides, want) in [
        (None, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (Some([4, 1]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (Some([1, 3]), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]),
    ] {
        let (tensor, deleted) = theirs(&[3, 4], strides.as_ref().map(|s| s.as_slice()));
        // SAFETY: alive, and not used elsewhere.
        let mut array = unsafe { import::<i32, 2>(tensor, &stream) }?;
        assert_eq!(array.to_vec()?, want);
        array.copy_from(&[7; 12])?;
        assert_eq!((array.to_vec()?, deleted.load(Ordering::Relaxed)), (vec![7; 12], 0));
        drop(array);
        assert_eq!(deleted.load(Ordering::Relaxed), 1);
    }
    let (tensor, deleted) = theirs(&[], None);
    // SAFETY: as above.
    assert_eq!(unsafe { import::<i32, 0>(tensor, &stream) }?.to_vec()?, [0]);
    assert_eq!(deleted.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn rejected_tensors_remain_the_callers() {
    refused::<u32, 2>(|_| {}, "no array of u32");
    refused::<f32, 2>(|_| {}, "no array of f32");
    refused::<f4e2m1fn, 2>(|_| {}, "use u8");
    refused::<i32, 2>(|t| t.dtype.lanes = 2, "vectors of 2");
    refused::<i32, 3>(|_| {}, "has 2 axes, the array has 3");
    refused::<i32, 2>(|t| t.device.kind = CUDA, "is not on the cpu device");
    refused::<i32, 2>(|t| t.shape = std::ptr::null_mut(), "without extents");
    refused::<i32, 2>(|t| t.byte_offset = 1, "multiple of 4");
    // SAFETY: the tensor has both numbers.
    refused::<i32, 2>(|t| unsafe { t.strides.write(-4) }, "of -4");
    // SAFETY: as above.
    refused::<i32, 2>(|t| unsafe { t.strides.write(0) }, "in one place");
    // SAFETY: null is rejected.
    let null = unsafe { import::<i32, 1>(std::ptr::null_mut(), &Device::cpu().default_stream()) };
    assert!(null.is_err());
}

#[test]
fn exported_arrays_are_imported_again() -> Result<()> {
    let device = Device::cpu();
    let stream = device.default_stream();
    let array = device.from_fn([2, 3, 5], |[i, j, k]| bf16::from_f32((i * 15 + j * 5 + k) as f32))?;
    let (address, want) = (array.address(), array.to_vec()?);
    let tensor = export(array, &stream)?;
    // SAFETY: just made, and alive until it is imported.
    let array = unsafe {
        let it = &(*tensor).tensor;
        assert_eq!((it.data as u64, it.rank, it.byte_offset), (address, 3, 0));
        assert_eq!(it.dtype, TensorType { code: 4, bits: 16, lanes: 1 });
        assert_eq!(std::slice::from_raw_parts(it.shape, 3), [2, 3, 5]);
        assert_eq!(std::slice::from_raw_parts(it.strides, 3), [15, 5, 1]);
        import::<bf16, 3>(tensor, &stream)
    }?;
    assert_eq!(array.to_vec()?, want);
    // A tensor of a tensor: the array holds the original one.
    let again = export(array, &stream)?;
    // SAFETY: as above.
    assert_eq!(unsafe { import::<bf16, 3>(again, &stream) }?.to_vec()?, want);
    assert!(export(device.zeros::<f4e2m1fn, 1>([4])?, &stream).is_err());
    Ok(())
}

#[test]
fn types_have_the_names_of_the_header() -> Result<()> {
    let names = [type_of::<bool>()?, type_of::<u8>()?, type_of::<i64>()?, type_of::<f16>()?, type_of::<f8e5m2>()?];
    assert_eq!(names.map(|t| (t.code, t.bits)), [(6, 8), (1, 8), (0, 64), (2, 16), (12, 8)]);
    Ok(())
}

#[test]
fn work_on_a_gpu_is_in_order() -> Result<()> {
    use crate::runtime::tests::{LONG, N, add, gpu, load};
    let Some(gpu) = gpu() else { return Ok(()) };
    let (kernel, ours, theirs) = (load(gpu)?, gpu.stream()?, gpu.stream()?);
    let mut array = gpu.zeros([N])?;
    for round in 1..=3 {
        add(&kernel, &mut array, &ours, LONG)?;
        let tensor = export(array, &theirs)?;
        // SAFETY: just made, and not used elsewhere.
        array = unsafe { import::<u32, 1>(tensor, &theirs) }?;
        add(&kernel, &mut array, &ours, 0)?;
        assert_eq!(array.to_vec()?, vec![2 * round; N]);
    }
    // Released while work is in flight.
    add(&kernel, &mut array, &ours, LONG)?;
    drop(array);
    assert_eq!(gpu.full([N], 5u32)?.to_vec()?, vec![5; N]);
    Ok(())
}
