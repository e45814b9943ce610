//! Tests of types of tiles and views, and of ops on views.

use super::*;

/// Returns the errors of a view type over a new tensor view.
fn type_complaint(make: impl FnOnce(&mut Case) -> Type) -> String {
    let mut case = Case::new();
    let ty = make(&mut case);
    // `assert` requires only the type of its operand.
    case.run(&[ty], Opcode::Assert, &[&[0], &[]], vec![Attr::Text("".into())], &[])
}

fn partition(tile: &[i32], view: TypeId, dim_map: &[i32], padding: Option<Padding>) -> Type {
    Type::PartitionView { tile: tile.to_vec(), view, dim_map: dim_map.to_vec(), padding }
}

#[test]
fn tile_types() {
    let complaint = |ty: Type| type_complaint(|_| ty);
    refused(&complaint(t(I32, &[15])), "not the sum of one to three powers of two");
    refused(&complaint(t(I32, &[0])), "not the sum of one to three powers of two");
    refused(&complaint(t(I32, &[-4])), "not the sum of one to three powers of two");
    refused(&complaint(t(I8, &[1 << 13, 1 << 12])), "at most 16777216");
    refused(&complaint(t(I8, &[1 << 62, 1 << 62])), "at most 16777216");
    refused(&complaint(t(F4E2M1FN, &[1, 1])), "even extent");
    refused(&complaint(t(F4E2M1FN, &[])), "even extent");
    refused(&complaint(ptrs(I4, None, &[])), "no pointers to i4");
    refused(&complaint(ptrs(F4E2M1FN, None, &[2])), "rank 0");
    refused(&complaint(ptrs(F4E2M1FN, None, &[])), "a tile of i1");
    refused(&complaint(t(I8, &[1 << 12, 1 << 12])), "a tile of i1");
}

#[test]
fn view_types() {
    let tensor = |shape: &[Option<i64>], strides: &[Option<i64>], elem| {
        let ty = Type::TensorView { elem, shape: shape.to_vec(), strides: strides.to_vec(), ptr_attr: None };
        type_complaint(|_| ty)
    };
    refused(&tensor(&[Some(0)], &[Some(1)], F32), "must be positive");
    refused(&tensor(&[None], &[Some(-1)], F32), "must be positive");
    refused(&tensor(&[None, None], &[Some(1)], F32), "2 extents and 1 strides");
    refused(&tensor(&[None], &[None], I4), "no views of i4");
    let tiles = |tile: &[i32], map: &[i32], padding, elem| {
        type_complaint(|case| {
            let view = case.tensor(elem, &[None, None], &[None, Some(1)]);
            partition(tile, view, map, padding)
        })
    };
    refused(&tiles(&[4, 8], &[1, 0], None, F32), "a tile of i1");
    refused(&tiles(&[4], &[0], None, F32), "tiles of rank 1 over a tensor view of rank 2");
    refused(&tiles(&[], &[], None, F32), "rank 0");
    refused(&tiles(&[4, 30], &[0, 1], None, F32), "not the sum of one to three powers of two");
    refused(&tiles(&[4, 8], &[0, 0], None, F32), "not a permutation");
    refused(&tiles(&[4, 8], &[0, 1], Some(Padding::NaN), I32), "padding value nan");
    refused(&tiles(&[4, 8], &[0, 1], Some(Padding::Zero), I32), "a tile of i1");
    let strided = |traversal: &[i32]| {
        type_complaint(|case| {
            let view = case.tensor(F32, &[None], &[Some(1)]);
            let (tile, dim_map) = (vec![4], vec![0]);
            Type::StridedView { tile, traversal: traversal.to_vec(), view, dim_map, padding: None }
        })
    };
    refused(&strided(&[0]), "must be positive");
    refused(&strided(&[1, 1]), "one traversal stride per tile dimension");
    let gather = type_complaint(|case| {
        let view = case.tensor(F32, &[None], &[Some(1)]);
        Type::GatherScatterView { tile: vec![4], view, sparse_dim: 1, padding: None }
    });
    refused(&gather, "sparse dimension 1");
    let nested = type_complaint(|case| {
        let view = case.builder.module.intern(Type::Token);
        partition(&[4], view, &[0], None)
    });
    refused(&nested, "must be a tensor_view");
}

#[test]
fn making_views() {
    let make = |base: Type, extent: Type, extents: &[usize]| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None, Some(4)], &[None, Some(1)]);
        let view = case.builder.module.type_of(view).clone();
        case.run(&[base, extent, t(I32, &[])], Opcode::MakeTensorView, &[&[0], extents, &[2]], vec![], &[view])
    };
    fine(&make(ptrs(F32, None, &[]), t(I32, &[]), &[1]));
    refused(&make(ptrs(I32, None, &[]), t(I32, &[]), &[1]), "must be tile<ptr<f32>>");
    refused(&make(ptrs(F32, Some(PtrAttr::None), &[]), t(I32, &[]), &[1]), "must be tile<ptr<f32>>");
    refused(&make(ptrs(F32, None, &[]), t(I64, &[]), &[1]), "one type");
    refused(&make(ptrs(F32, None, &[]), t(I32, &[2]), &[1]), "an integer of rank 0");
    refused(&make(ptrs(F32, None, &[]), t(I32, &[]), &[]), "0 values of dynamic_shape");
    let cut = |code, other: bool| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None], &[Some(1)]);
        let source = if other { case.tensor(F32, &[None], &[None]) } else { view };
        let source = case.builder.module.type_of(source).clone();
        case.run(&[source], code, &[&[0]], vec![], &[partition(&[4], view, &[0], None)])
    };
    fine(&cut(Opcode::MakePartitionView, false));
    refused(&cut(Opcode::MakePartitionView, true), "is made of");
    refused(&cut(Opcode::MakeStridedView, false), "must be a strided_view");
    let query = |code, tiles: bool, results: &[Type]| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None], &[Some(1)]);
        let tensor = case.builder.module.type_of(view).clone();
        let source = if tiles { partition(&[4], view, &[0], None) } else { tensor };
        case.run(&[source], code, &[&[0]], vec![], results)
    };
    fine(&query(Opcode::GetTensorShape, false, &[t(I64, &[])]));
    fine(&query(Opcode::GetIndexSpaceShape, true, &[t(I32, &[])]));
    refused(&query(Opcode::GetTensorShape, true, &[t(I32, &[])]), "must be a tensor_view");
    refused(&query(Opcode::GetIndexSpaceShape, false, &[t(I32, &[])]), "must be a view of tiles");
    refused(&query(Opcode::GetTensorShape, false, &[]), "0 results");
    refused(&query(Opcode::GetTensorShape, false, &[t(F32, &[])]), "an integer of rank 0");
}

fn weak() -> Vec<Attr> {
    vec![Attr::MemOrder(MemOrder::Weak)]
}

#[test]
fn loads_and_stores() {
    let load = |attrs, index: &[usize], to: Type| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None, None], &[None, Some(1)]);
        let params = [partition(&[4, 8], view, &[1, 0], None), t(I32, &[]), t(I64, &[])];
        case.run(&params, Opcode::LoadView, &[&[0], index, &[]], attrs, &[to, Type::Token])
    };
    fine(&load(weak(), &[1, 1], t(F32, &[4, 8])));
    refused(&load(weak(), &[1], t(F32, &[4, 8])), "1 indices");
    refused(&load(weak(), &[1, 2], t(F32, &[4, 8])), "one type");
    refused(&load(weak(), &[1, 1], t(F32, &[8, 4])), "must be tile<4x8xf32>");
    let inbounds = |count| vec![Attr::MemOrder(MemOrder::Weak), Attr::Inbounds(vec![true; count])];
    fine(&load(inbounds(2), &[1, 1], t(F32, &[4, 8])));
    refused(&load(inbounds(3), &[1, 1], t(F32, &[4, 8])), "3 values of inbounds");
    let store = |tile: Type| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None], &[Some(1)]);
        let params = [tile, partition(&[4], view, &[0], None), t(I32, &[])];
        case.run(&params, Opcode::StoreView, &[&[0], &[1], &[2], &[]], weak(), &[Type::Token])
    };
    fine(&store(t(F32, &[4])));
    refused(&store(t(F32, &[8])), "must be tile<4xf32>");
    let gather = |sparse: Type| {
        let mut case = Case::new();
        let view = case.tensor(F32, &[None, None], &[None, Some(1)]);
        let ty = Type::GatherScatterView { tile: vec![4, 8], view, sparse_dim: 0, padding: None };
        let results = [t(F32, &[4, 8]), Type::Token];
        case.run(&[ty, sparse, t(I32, &[])], Opcode::LoadView, &[&[0], &[1, 2], &[]], weak(), &results)
    };
    fine(&gather(t(I32, &[4])));
    refused(&gather(t(I32, &[])), "4 positions");
    refused(&gather(t(I32, &[8])), "4 positions");
}

#[test]
fn view_atomics_and_multimem() {
    let red = |mode, scope, elem, padding| {
        let mut case = Case::new();
        let view = case.tensor(elem, &[None], &[Some(1)]);
        let params = [partition(&[4], view, &[0], padding), t(I32, &[]), t(elem, &[4])];
        let attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(scope), Attr::AtomicMode(mode)];
        case.run(&params, Opcode::AtomicRedView, &[&[0], &[1], &[2], &[]], attrs, &[Type::Token])
    };
    fine(&red(AtomicMode::AddF, MemScope::Device, F16, None));
    refused(&red(AtomicMode::AddF, MemScope::System, F16, None), "scope sys");
    refused(&red(AtomicMode::Add, MemScope::Device, F32, None), "it takes i32, i64");
    refused(&red(AtomicMode::Xchg, MemScope::Device, I32, None), "no reduction");
    refused(&red(AtomicMode::Add, MemScope::Device, I32, Some(Padding::Zero)), "without padding");
    let multimem = |kind, elem, attr| {
        let mut case = Case::new();
        let view = case.tensor_at(elem, &[None], &[Some(1)], attr);
        let params = [partition(&[4], view, &[0], None), t(I32, &[])];
        let attrs = vec![Attr::MemOrder(MemOrder::Weak), Attr::MultimemKind(kind), Attr::Inbounds(vec![false])];
        let results = [t(elem, &[4]), Type::Token];
        case.run(&params, Opcode::MultimemLoadReduce, &[&[0], &[1], &[]], attrs, &results)
    };
    let multicast = Some(PtrAttr::Multicast);
    fine(&multimem(MultimemKind::Max, F16, multicast));
    fine(&multimem(MultimemKind::Xor, I64, multicast));
    refused(&multimem(MultimemKind::Max, F32, multicast), "does not exist");
    refused(&multimem(MultimemKind::Add, F32, None), "over multicast memory");
}
