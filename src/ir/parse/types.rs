//! Parser of types and hints.

use super::cursor::Parsed;
use super::parser::Parser;
use crate::dtype::DType;
use crate::ir::{Elem, HintValue, Hints, Padding, PtrAttr, Type, TypeId};
use crate::util::collect::CollectVec as _;

impl<'t> Parser<'t> {
    /// Parses a type.
    pub(super) fn ty(&mut self) -> Parsed<TypeId> {
        let at = self.cursor.position();
        let ty = match self.cursor.word()? {
            "token" => Type::Token,
            "tile" => self.tile()?,
            "tensor_view" => self.tensor_view()?,
            kind @ ("partition_view" | "strided_view" | "gather_scatter_view") => self.tiled_view(kind)?,
            other => return self.cursor.fail_at(at, format!("`{other}` is no type of Tile IR")),
        };
        Ok(self.module.intern(ty))
    }

    /// Parses types separated by commas.
    pub(super) fn types(&mut self) -> Parsed<Vec<TypeId>> {
        let mut types = vec![self.ty()?];
        while self.cursor.eat(",") {
            types.push(self.ty()?);
        }
        Ok(types)
    }

    pub(super) fn dtype(&mut self) -> Parsed<DType> {
        let at = self.cursor.position();
        let name = self.cursor.word()?;
        let found = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
        found.map_or_else(|| self.cursor.fail_at(at, format!("`{name}` is no element type")), Ok)
    }

    fn tile(&mut self) -> Parsed<Type> {
        self.cursor.expect("<")?;
        let mut shape = Vec::new();
        while self.cursor.peek_word().starts_with(|c: char| c.is_ascii_digit()) {
            shape.push(self.cursor.integer()?);
            self.cursor.expect("x")?;
        }
        let elem = match self.cursor.eat("ptr<") {
            false => Elem::Num(self.dtype()?),
            true => {
                let pointee = self.dtype()?;
                let attr = if self.cursor.eat(",") { Some(self.ptr_attr()?) } else { None };
                self.cursor.expect(">")?;
                Elem::Ptr { pointee, attr }
            }
        };
        self.cursor.expect(">")?;
        Ok(Type::Tile { elem, shape })
    }

    /// Parses `<unicast>`.
    fn ptr_attr(&mut self) -> Parsed<PtrAttr> {
        self.cursor.expect("<")?;
        let at = self.cursor.position();
        let name = self.cursor.word()?;
        let all = [PtrAttr::None, PtrAttr::Unicast, PtrAttr::Multicast];
        let Some(attr) = all.into_iter().find(|attr| attr.name() == name) else {
            return self.cursor.fail_at(at, format!("`{name}` is no kind of pointer"));
        };
        self.cursor.expect(">")?;
        Ok(attr)
    }

    fn extent(&mut self) -> Parsed<Option<i64>> {
        if self.cursor.eat("?") { Ok(None) } else { self.cursor.integer().map(Some) }
    }

    fn tensor_view(&mut self) -> Parsed<Type> {
        self.cursor.expect("<")?;
        let (mut shape, mut strides, mut ptr_attr) = (Vec::new(), Vec::new(), None);
        while self.cursor.is_next("?") || self.cursor.peek_word().starts_with(|c: char| c.is_ascii_digit()) {
            shape.push(self.extent()?);
            self.cursor.expect("x")?;
        }
        let elem = self.dtype()?;
        while self.cursor.eat(",") {
            if self.cursor.eat("#cuda_tile.ptr_attr") {
                ptr_attr = Some(self.ptr_attr()?);
            } else {
                self.cursor.expect_word("strides")?;
                self.cursor.expect("=")?;
                strides = self.list("[", "]", Self::extent)?;
            }
        }
        self.cursor.expect(">")?;
        Ok(Type::TensorView { elem, shape, strides, ptr_attr })
    }

    fn tiled_view(&mut self, kind: &str) -> Parsed<Type> {
        self.cursor.expect("<")?;
        self.cursor.expect_word("tile")?;
        self.cursor.expect("=")?;
        self.cursor.expect("(")?;
        let mut tile: Vec<i32> = vec![self.cursor.integer()?];
        while self.cursor.eat("x") {
            tile.push(self.cursor.integer()?);
        }
        self.cursor.expect(")")?;
        let (mut traversal, mut padding) = (Vec::new(), None);
        loop {
            self.cursor.expect(",")?;
            if self.cursor.eat_word("traversal_strides") {
                self.cursor.expect("=")?;
                traversal = self.list("[", "]", |p| p.cursor.integer())?;
            } else if self.cursor.eat_word("padding_value") {
                self.cursor.expect("=")?;
                padding = Some(self.padding()?);
            } else {
                break;
            }
        }
        let view = self.ty()?;
        let (mut dim_map, mut sparse_dim) = ((0..tile.len() as i32).collect_vec(), 0);
        while self.cursor.eat(",") {
            if self.cursor.eat_word("sparse_dim") {
                self.cursor.expect("=")?;
                sparse_dim = self.cursor.integer()?;
            } else {
                self.cursor.expect_word("dim_map")?;
                self.cursor.expect("=")?;
                dim_map = self.list("[", "]", |p| p.cursor.integer())?;
            }
        }
        self.cursor.expect(">")?;
        Ok(match kind {
            "partition_view" => Type::PartitionView { tile, view, dim_map, padding },
            "strided_view" => Type::StridedView { tile, traversal, view, dim_map, padding },
            _ => Type::GatherScatterView { tile, view, sparse_dim, padding },
        })
    }

    fn padding(&mut self) -> Parsed<Padding> {
        let at = self.cursor.position();
        let name = self.cursor.word()?;
        let all = [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf];
        let found = all.into_iter().find(|padding| padding.name() == name);
        found.map_or_else(|| self.cursor.fail_at(at, format!("`{name}` is no padding")), Ok)
    }

    /// Parses `<sm_90 = {latency = 3}, …>`.
    pub(super) fn hints(&mut self) -> Parsed<Hints> {
        let targets = self.list("<", ">", |p| {
            let target = p.cursor.word()?.to_string();
            p.cursor.expect("=")?;
            let keys = p.list("{", "}", |p| {
                let key = p.cursor.word()?.to_string();
                p.cursor.expect("=")?;
                let value = match p.cursor.peek_word() {
                    "true" | "false" => HintValue::Bool(p.cursor.word()? == "true"),
                    _ => HintValue::Int(p.cursor.integer()?),
                };
                Ok((key, value))
            })?;
            Ok((target, keys))
        })?;
        Ok(Hints(targets))
    }

    /// Parses `(%a: type, …)`.
    pub(super) fn typed_args(&mut self) -> Parsed<(Vec<&'t str>, Vec<TypeId>)> {
        let (mut names, mut types) = (Vec::new(), Vec::new());
        self.cursor.expect("(")?;
        while !self.cursor.eat(")") {
            if !names.is_empty() {
                self.cursor.expect(",")?;
            }
            self.cursor.expect("%")?;
            names.push(self.cursor.symbol()?);
            self.cursor.expect(":")?;
            types.push(self.ty()?);
        }
        Ok((names, types))
    }

    /// Parses `: types`, or `: types -> results`. Only the last list is returned.
    pub(super) fn result_types(&mut self) -> Parsed<Vec<TypeId>> {
        self.cursor.expect(":")?;
        let mut types = if self.cursor.is_next("->") { Vec::new() } else { self.types()? };
        if self.cursor.eat("->") {
            types = if self.sees_type() { self.types()? } else { Vec::new() };
        }
        Ok(types)
    }

    /// Parses types and returns the last one.
    pub(super) fn last_type(&mut self) -> Parsed<TypeId> {
        match self.result_types()?.last() {
            Some(&ty) => Ok(ty),
            None => self.cursor.fail("expected a type"),
        }
    }

    fn sees_type(&self) -> bool {
        let word = self.cursor.peek_word();
        word == "token" || word == "tile" || word.ends_with("_view")
    }
}
