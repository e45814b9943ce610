//! Loads, stores and atomics through views and pointers.

use super::*;

const TYPES: [DType; 8] =
    [DType::I1, DType::I8, DType::BF16, DType::I32, DType::F32, DType::TF32, DType::F64, DType::F8E4M3FN];

fn pattern(dtype: DType, i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - dtype.bits().min(dtype.storage_bits()))
}

/// Loads tile `index` of a view on a 5 × 7 array and stores it densely.
fn load_tile(
    dtype: DType,
    array: &mut Buffer,
    extents: &[i64],
    strides: &[i64],
    shape: &[i64],
    index: &[i64],
    make: impl FnOnce(TypeId) -> Type,
) -> Result<Vec<u64>> {
    let mut b = Builder::new();
    let [source, target]: [Value; 2] = b.begin_entry("load", &[Type::ptr(dtype), Type::ptr(dtype)]).try_into().unwrap();
    b.set_location(&Location { file: "load.rs".into(), line: 9, column: 9 });
    let from = view(&mut b, source, dtype, extents, strides, make);
    let index: Vec<Value> = index.iter().map(|&i| int(&mut b, i)).collect();
    let loaded = load(&mut b, from, &index, dtype, shape);
    let count = shape.iter().product::<i64>();
    let flat = op(&mut b, Opcode::Reshape, &[loaded], vec![], dtype, &[count]);
    let to = partition(&mut b, target, dtype, &[count], &[1], &[count as i32]);
    let zero = int(&mut b, 0);
    store(&mut b, flat, to, &[zero]);
    finish(&mut b);
    let mut out = Buffer::zeros(dtype, count as usize);
    launch(&b.module, [1; 3], &mut [array, &mut out])?;
    Ok(out.all(dtype, count as usize))
}

#[test]
fn partitions_pad_and_permute() {
    for dtype in TYPES {
        let bits: Vec<u64> = (0..35).map(|i| pattern(dtype, i)).collect();
        let mut array = Buffer::new(dtype, &bits);
        for dim_map in [[0, 1], [1, 0]] {
            for padding in
                [None, Some(Padding::Zero), Some(Padding::NegInf), Some(Padding::NegZero), Some(Padding::NaN)]
            {
                if dtype.is_int() && padding.is_some_and(|p| p != Padding::Zero) {
                    continue;
                }
                for index in [[0, 0], [1, 0], [2, 1], [1, 3], [3, 0], [-1, 0], [0, -1], [i32::MAX as i64, 0]] {
                    let tile = [2i64, 4];
                    let ours = load_tile(dtype, &mut array, &[5, 7], &[7, 1], &tile, &index, |view| {
                        Type::PartitionView { tile: vec![2, 4], view, dim_map: dim_map.to_vec(), padding }
                    })
                    .unwrap();
                    for (at, word) in ours.into_iter().enumerate() {
                        let inner = [at as i64 / 4, at as i64 % 4];
                        let mut place = [0; 2];
                        for d in 0..2 {
                            place[dim_map[d] as usize] = index[d] * tile[d] + inner[d];
                        }
                        let inside = (0..5).contains(&place[0]) && (0..7).contains(&place[1]);
                        let outside = match padding {
                            None | Some(Padding::Zero) => 0,
                            Some(Padding::NegZero) => float_codec::encode(dtype, -0.0, Rounding::Zero),
                            Some(Padding::NaN) => float_codec::encode(dtype, f64::NAN, Rounding::Zero),
                            Some(Padding::PosInf) => float_codec::encode(dtype, f64::INFINITY, Rounding::Zero),
                            Some(Padding::NegInf) => float_codec::encode(dtype, f64::NEG_INFINITY, Rounding::Zero),
                        };
                        let stored = |i: usize| if dtype == DType::I1 { (bits[i] & 1 != 0) as u64 } else { bits[i] };
                        let expected = if inside { stored((place[0] * 7 + place[1]) as usize) } else { outside };
                        assert_eq!(word, expected, "{dtype} {dim_map:?} {padding:?} {index:?} {inner:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn strided_and_gathered_tiles() {
    let dtype = DType::I32;
    let mut array = Buffer::new(dtype, &(100..135).collect::<Vec<_>>());
    let strided =
        |view| Type::StridedView { tile: vec![2, 4], traversal: vec![1, 3], view, dim_map: vec![0, 1], padding: None };
    // Overlapping tiles: row 4, columns 3 to 6, after which the index space ends.
    let ours = load_tile(dtype, &mut array, &[5, 7], &[7, 1], &[2, 4], &[4, 1], strided).unwrap();
    assert_eq!(ours, [131, 132, 133, 134, 0, 0, 0, 0]);
    let ours = load_tile(dtype, &mut array, &[5, 7], &[7, 1], &[2, 4], &[-1, -1], strided).unwrap();
    assert_eq!(ours, [0, 0, 0, 0, 0, 0, 0, 100], "from row -1, column -3 on");
    for outside in [[-2, 0], [0, -2], [5, 0], [0, 3]] {
        let ours = load_tile(dtype, &mut array, &[5, 7], &[7, 1], &[2, 4], &outside, strided).unwrap();
        assert_eq!(ours, [0; 8], "{outside:?}");
    }

    let mut b = Builder::new();
    let [source, target]: [Value; 2] =
        b.begin_entry("gather", &[Type::ptr(dtype), Type::ptr(dtype)]).try_into().unwrap();
    let gathered =
        |view| Type::GatherScatterView { tile: vec![4, 2], view, sparse_dim: 0, padding: Some(Padding::Zero) };
    let from = view(&mut b, source, dtype, &[5, 7], &[7, 1], gathered);
    let to = view(&mut b, target, dtype, &[5, 7], &[7, 1], gathered);
    let rows = tile(&mut b, dtype, &[4], &[3, 0, 9, u32::MAX as u64]);
    let columns = int(&mut b, 6);
    let part = load(&mut b, from, &[rows, columns], dtype, &[4, 2]);
    store(&mut b, part, to, &[rows, columns]);
    finish(&mut b);
    let mut out = Buffer::zeros(dtype, 35);
    launch(&b.module, [1; 3], &mut [&mut array, &mut out]).unwrap();
    for i in 0..35 {
        assert_eq!(out.get(dtype, i), if i == 6 || i == 27 { 100 + i as u64 } else { 0 });
    }
}

#[test]
fn stores_leave_the_outside_alone() {
    for dtype in TYPES {
        let mut b = Builder::new();
        let base = b.begin_entry("store", &[Type::ptr(dtype)])[0];
        // A 3 × 5 window of a 4 × 8 array.
        let window = partition(&mut b, base, dtype, &[3, 5], &[8, 1], &[2, 4]);
        let bits: Vec<u64> = (0..8).map(|i| if dtype == DType::I1 { 1 } else { pattern(dtype, i) }).collect();
        let value = tile(&mut b, dtype, &[2, 4], &bits);
        for (i, j) in [(1, 1), (2, 0), (-1, 0)] {
            let index = [i, j].map(|v| int(&mut b, v));
            store(&mut b, value, window, &index);
        }
        finish(&mut b);
        let mut array = Buffer::zeros(dtype, 32);
        launch(&b.module, [1; 3], &mut [&mut array]).unwrap();
        for at in 0..32 {
            assert_eq!(array.get(dtype, at), if at == 20 { bits[0] } else { 0 }, "{dtype} {at}");
        }
    }
}

#[test]
fn four_bit_elements_share_bytes() {
    let dtype = DType::F4E2M1FN;
    let bits: Vec<u64> = (0..16).collect();
    let mut array = Buffer::new(dtype, &bits);
    let ours = load_tile(dtype, &mut array, &[2, 6], &[8, 1], &[2, 4], &[0, 1], |view| Type::PartitionView {
        tile: vec![2, 4],
        view,
        dim_map: vec![0, 1],
        padding: None,
    })
    .unwrap();
    assert_eq!(ours, [4, 5, 0, 0, 12, 13, 0, 0]);
}

#[test]
fn a_wrong_stride_is_an_error() {
    let mut array = Buffer::zeros(DType::F32, 35);
    let all = |view| Type::PartitionView { tile: vec![8, 8], view, dim_map: vec![0, 1], padding: None };
    let ours = load_tile(DType::F32, &mut array, &[5, 7], &[8, 1], &[8, 8], &[0, 0], all);
    assert_eq!(
        fault(ours),
        "load.rs:9:9: out of bounds: reads 156 bytes at byte 0 of an array of 140 bytes\n  in tile block (0, 0, 0)"
    );
    let huge = load_tile(DType::F32, &mut array, &[5, 7], &[i64::MAX / 2, 1], &[8, 8], &[0, 0], all);
    assert!(fault(huge).contains("does not fit 64 bits"));

    let mut b = Builder::new();
    let base = b.begin_entry("write", &[Type::ptr(DType::F32)])[0];
    let window = partition(&mut b, base, DType::F32, &[4], &[1], &[4]);
    let (value, zero) = (b.splat(DType::F32, 0, &[4]), int(&mut b, 0));
    store(&mut b, value, window, &[zero]);
    finish(&mut b);
    let program = Program::compile(&b.module).unwrap();
    let mut memory = Memory::new();
    // SAFETY: the buffer outlives the run.
    unsafe { memory.add(array.words.as_mut_ptr().cast(), 140, false) };
    let run = |address| fault(program.run([1; 3], &[address], &memory, &RunOptions::default()));
    let address = array.words.as_ptr() as u64;
    assert!(run(address).contains("passed for reading only"));
    assert!(run(address + 140).contains("at byte 140 of an array of 140 bytes"));
    assert!(run(0).contains("writes 16 bytes"));
}

#[test]
fn bounds_promises_are_checked() {
    let module = |index: i64| {
        let mut b = Builder::new();
        let base = b.begin_entry("sure", &[Type::ptr(DType::I32)])[0];
        let from = partition(&mut b, base, DType::I32, &[6], &[1], &[4]);
        let types = [Type::tile(DType::I32, [4]), Type::Token].map(|t| b.module.intern(t));
        let attrs = vec![Attr::MemOrder(MemOrder::Weak), Attr::Inbounds(vec![true])];
        let index = int(&mut b, index);
        b.op(Opcode::LoadView, &[&[from], &[index], &[]], attrs, vec![], &types);
        finish(&mut b);
        b.module
    };
    let mut array = Buffer::zeros(DType::I32, 6);
    launch(&module(0), [1; 3], &mut [&mut array]).unwrap();
    assert!(fault(launch(&module(1), [1; 3], &mut [&mut array])).contains("assumed to be in bounds"));
}

/// Pointers to elements `offsets` of the array at `base`.
fn pointers(b: &mut Builder, base: Value, dtype: DType, offsets: &[u64]) -> Value {
    let shape = [offsets.len() as i64];
    let elem = Elem::Ptr { pointee: dtype, attr: None };
    let one = b.module.intern(Type::Tile { elem, shape: vec![1] });
    let many = b.module.intern(Type::Tile { elem, shape: shape.to_vec() });
    let base = b.simple(Opcode::Reshape, &[base], vec![], one);
    let base = b.simple(Opcode::Broadcast, &[base], vec![], many);
    let offsets = tile(b, DType::I32, &shape, offsets);
    b.simple(Opcode::Offset, &[base, offsets], vec![], many)
}

#[test]
fn pointers_with_masks() {
    for dtype in TYPES {
        let mut b = Builder::new();
        let [source, target]: [Value; 2] =
            b.begin_entry("scatter", &[Type::ptr(dtype), Type::ptr(dtype)]).try_into().unwrap();
        let (from, to) = (
            pointers(&mut b, source, dtype, &[3, 1, 900, 0]),
            pointers(&mut b, target, dtype, &[0, 2, 4, u32::MAX as u64]),
        );
        let (reads, writes) =
            (tile(&mut b, DType::I1, &[4], &[1, 1, 0, 1]), tile(&mut b, DType::I1, &[4], &[1, 1, 1, 0]));
        let other = b.splat(dtype, 1, &[4]);
        let types = [Type::tile(dtype, [4]), Type::Token].map(|t| b.module.intern(t));
        let weak = || vec![Attr::MemOrder(MemOrder::Weak)];
        let id = b.op(Opcode::LoadPtr, &[&[from], &[reads], &[other], &[]], weak(), vec![], &types);
        let loaded = b.module.op(id).results[0];
        b.op(Opcode::StorePtr, &[&[to], &[loaded], &[writes], &[]], weak(), vec![], &types[1..]);
        finish(&mut b);
        let bits: Vec<u64> = (0..4).map(|i| if dtype == DType::I1 { 1 } else { pattern(dtype, i) }).collect();
        let (mut source, mut target) = (Buffer::new(dtype, &bits), Buffer::zeros(dtype, 5));
        launch(&b.module, [1; 3], &mut [&mut source, &mut target]).unwrap();
        assert_eq!(target.all(dtype, 5), [bits[3], 0, bits[1], 0, 1], "{dtype}");
    }
}

fn atomic_attrs(mode: AtomicMode) -> Vec<Attr> {
    vec![Attr::MemOrder(MemOrder::AcqRel), Attr::MemScope(MemScope::Device), Attr::AtomicMode(mode)]
}

#[test]
fn atomics_of_many_blocks() {
    let dtype = DType::I64;
    let mut b = Builder::new();
    let base = b.begin_entry("count", &[Type::ptr(dtype)])[0];
    let i32_type = b.module.intern(Type::scalar(DType::I32));
    let id = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[i32_type; 3]);
    let x = b.module.op(id).results[0];
    let wide = op(&mut b, Opcode::ExtI, &[x], vec![Attr::Sign(Sign::Signed)], dtype, &[]);
    let one_wide = op(&mut b, Opcode::Reshape, &[wide], vec![], dtype, &[1]);
    let numbers = op(&mut b, Opcode::Broadcast, &[one_wide], vec![], dtype, &[4]);
    let types = [Type::tile(dtype, [4]), Type::Token].map(|t| b.module.intern(t));
    for (i, mode) in [AtomicMode::Add, AtomicMode::Max, AtomicMode::Or, AtomicMode::UMin].into_iter().enumerate() {
        let places = pointers(&mut b, base, dtype, &[i as u64, 8 + i as u64, 8 + i as u64, 8 + i as u64]);
        b.op(Opcode::AtomicRmw, &[&[places], &[numbers], &[], &[]], atomic_attrs(mode), vec![], &types);
    }
    let whole = partition(&mut b, base, dtype, &[20], &[1], &[4]);
    let (four, token) = (int(&mut b, 4), types[1]);
    b.op(Opcode::AtomicRedView, &[&[whole], &[four], &[numbers], &[]], atomic_attrs(AtomicMode::Add), vec![], &[token]);
    finish(&mut b);
    let mut array = Buffer::new(dtype, &[0, 0, 0, u64::MAX, 0, 0, 0, 0, 0, 0, 0, u64::MAX, 0, 0, 0, 0, 0, 0, 0, 0]);
    let blocks = 300;
    launch(&b.module, [blocks as u32, 1, 1], &mut [&mut array]).unwrap();
    let sum: u64 = (0..blocks).sum();
    let all = array.all(dtype, 20);
    assert_eq!(all[..4], [sum, blocks - 1, 511, 0]);
    assert_eq!(all[8..12], [3 * sum, blocks - 1, 511, 0]);
    assert_eq!(all[16..], [sum; 4]);
}

#[test]
fn old_values_and_exchange() {
    for dtype in [DType::I32, DType::F32, DType::F64, DType::I64] {
        let encode =
            |v: f64| if dtype.is_int() { v as u64 } else { float_codec::encode(dtype, v, Rounding::NearestEven) };
        let mut b = Builder::new();
        let [base, target]: [Value; 2] =
            b.begin_entry("swap", &[Type::ptr(dtype), Type::ptr(dtype)]).try_into().unwrap();
        let places = pointers(&mut b, base, dtype, &[0, 1, 2, 3]);
        let types = [Type::tile(dtype, [4]), Type::Token].map(|t| b.module.intern(t));
        let expected = tile(&mut b, dtype, &[4], &[1.0, 9.0, 3.0, 4.0].map(encode));
        let new = b.splat(dtype, encode(7.0), &[4]);
        let mask = tile(&mut b, DType::I1, &[4], &[1, 1, 0, 1]);
        let attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device)];
        let id = b.op(Opcode::AtomicCas, &[&[places], &[expected], &[new], &[mask], &[]], attrs, vec![], &types);
        let old = b.module.op(id).results[0];
        let add = if dtype.is_int() { AtomicMode::Add } else { AtomicMode::AddF };
        let id = b.op(Opcode::AtomicRmw, &[&[places], &[new], &[], &[]], atomic_attrs(add), vec![], &types);
        let sums = b.module.op(id).results[0];
        let to = partition(&mut b, target, dtype, &[8], &[1], &[4]);
        for (i, value) in [old, sums].into_iter().enumerate() {
            let index = int(&mut b, i as i64);
            store(&mut b, value, to, &[index]);
        }
        finish(&mut b);
        let mut array = Buffer::new(dtype, &[1.0, 2.0, 3.0, 4.0].map(encode));
        let mut out = Buffer::zeros(dtype, 8);
        launch(&b.module, [1; 3], &mut [&mut array, &mut out]).unwrap();
        assert_eq!(out.all(dtype, 8), [1.0, 2.0, 3.0, 4.0, 7.0, 2.0, 3.0, 7.0].map(encode), "{dtype}");
        assert_eq!(array.all(dtype, 4), [14.0, 9.0, 10.0, 14.0].map(encode));
    }
}

#[test]
fn globals_and_private_memory() {
    let mut b = Builder::new();
    let base = b.begin_entry("tables", &[Type::ptr(DType::I16)])[0];
    let ty = b.module.intern(Type::tile(DType::I16, [4]));
    let table = |name: &str, constant| Global {
        name: name.into(),
        ty,
        value: ConstData::Dense([5, 6, 7, 8].into()),
        alignment: 0,
        private: true,
        constant,
    };
    b.module.globals.extend([table("first", true), table("second", false)]);
    let pointer = b.module.intern(Type::ptr(DType::I16));
    let name = |n: &str| vec![Attr::Text(n.into())];
    let first = b.simple(Opcode::GetGlobal, &[], name("first"), pointer);
    let second = b.simple(Opcode::GetGlobal, &[], name("second"), pointer);
    let attrs = vec![Attr::NumElem(6), Attr::Alignment(64)];
    let own = b.simple(Opcode::Alloca, &[], attrs, pointer);
    let zero = int(&mut b, 0);
    let views = [first, second, own, base].map(|p| partition(&mut b, p, DType::I16, &[4], &[1], &[4]));
    // first -> own -> second, + own -> result
    let value = load(&mut b, views[0], &[zero], DType::I16, &[4]);
    store(&mut b, value, views[2], &[zero]);
    let value = load(&mut b, views[2], &[zero], DType::I16, &[4]);
    let twice = op(&mut b, Opcode::AddI, &[value, value], vec![], DType::I16, &[4]);
    store(&mut b, twice, views[1], &[zero]);
    let value = load(&mut b, views[1], &[zero], DType::I16, &[4]);
    store(&mut b, value, views[3], &[zero]);
    finish(&mut b);
    let mut out = Buffer::zeros(DType::I16, 4);
    launch(&b.module, [1; 3], &mut [&mut out]).unwrap();
    assert_eq!(out.all(DType::I16, 4), [10, 12, 14, 16]);
}

#[test]
fn shapes_of_views() {
    let results = try_eval(|b| {
        let ty = b.module.intern(Type::ptr(DType::F32));
        let null = b.splat(DType::I64, 0, &[]);
        let base = b.simple(Opcode::IntToPtr, &[null], vec![], ty);
        let cut = view(b, base, DType::F32, &[5, 7], &[7, 1], |view| Type::PartitionView {
            tile: vec![2, 4],
            view,
            dim_map: vec![1, 0],
            padding: None,
        });
        let i32_type = b.module.intern(Type::scalar(DType::I32));
        let id = b.op(Opcode::GetIndexSpaceShape, &[&[cut]], vec![], vec![], &[i32_type; 2]);
        b.module.op(id).results.clone()
    })
    .unwrap();
    assert_eq!(results, [vec![4], vec![2]]);
}
