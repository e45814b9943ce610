//! Printer of types, attributes of types, and hints.

use crate::util::collect::CollectVec as _;
use std::fmt::{self, Display, Write};

use crate::ir::{Elem, HintValue, Hints, Module, Padding, PtrAttr, Type, TypeId};
use crate::util::sort;

/// Type of a module, with `Display`.
pub(crate) struct TypeText<'m>(pub &'m Module, pub &'m Type);

impl PtrAttr {
    /// Returns the spelling in Tile IR text.
    pub const fn name(self) -> &'static str {
        match self {
            PtrAttr::None => "none",
            PtrAttr::Unicast => "unicast",
            PtrAttr::Multicast => "multicast",
        }
    }
}

impl Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Elem::Num(dtype) => write!(f, "{dtype}"),
            Elem::Ptr { pointee, attr: None } => write!(f, "ptr<{pointee}>"),
            Elem::Ptr { pointee, attr: Some(attr) } => write!(f, "ptr<{pointee}, <{}>>", attr.name()),
        }
    }
}

/// Joins items with a separator.
pub(super) fn join<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    let mut out = String::new();
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        write!(out, "{item}").expect("writing to a string");
    }
    out
}

fn extent(value: &Option<i64>) -> String {
    value.map_or_else(|| "?".to_string(), |v| v.to_string())
}

fn is_identity(dim_map: &[i32]) -> bool {
    dim_map.iter().enumerate().all(|(i, &d)| i as i32 == d)
}

impl TypeText<'_> {
    fn view_head(&self, name: &str, tile: &[i32], traversal: Option<&[i32]>, padding: Option<Padding>) -> String {
        let mut out = format!("{name}<tile=({}), ", join(tile, "x"));
        if let Some(steps) = traversal {
            out += &format!("traversal_strides=[{}], ", join(steps, ","));
        }
        if let Some(padding) = padding {
            out += &format!("padding_value = {}, ", padding.name());
        }
        out
    }

    fn view(&self, id: TypeId) -> TypeText<'_> {
        TypeText(self.0, self.0.type_of(id))
    }

    fn dim_map(map: &[i32]) -> String {
        if is_identity(map) { String::new() } else { format!(", dim_map=[{}]", join(map, ", ")) }
    }
}

impl Display for TypeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Type::Tile { elem, shape } => {
                f.write_str("tile<")?;
                shape.iter().try_for_each(|extent| write!(f, "{extent}x"))?;
                write!(f, "{elem}>")
            }
            Type::TensorView { elem, shape, strides, ptr_attr } => {
                f.write_str("tensor_view<")?;
                shape.iter().try_for_each(|e| write!(f, "{}x", extent(e)))?;
                write!(f, "{elem}")?;
                if !shape.is_empty() {
                    write!(f, ", strides=[{}]", join(strides.iter().map(extent), ","))?;
                }
                if let Some(attr) = ptr_attr {
                    write!(f, ", #cuda_tile.ptr_attr<{}>", attr.name())?;
                }
                f.write_char('>')
            }
            Type::PartitionView { tile, view, dim_map, padding } => {
                let head = self.view_head("partition_view", tile, None, *padding);
                write!(f, "{head}{}{}>", self.view(*view), Self::dim_map(dim_map))
            }
            Type::StridedView { tile, traversal, view, dim_map, padding } => {
                let head = self.view_head("strided_view", tile, Some(traversal), *padding);
                write!(f, "{head}{}{}>", self.view(*view), Self::dim_map(dim_map))
            }
            Type::GatherScatterView { tile, view, sparse_dim, padding } => {
                let head = self.view_head("gather_scatter_view", tile, None, *padding);
                write!(f, "{head}{}, sparse_dim={sparse_dim}>", self.view(*view))
            }
            Type::Token => f.write_str("token"),
        }
    }
}

impl Display for Hints {
    /// Prints targets and keys in alphabetical order, as `<sm_90 = {latency = 3}>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut targets: Vec<_> = self.0.iter().collect_vec();
        sort::by(&mut targets, |a, b| a.0.cmp(&b.0));
        let inner = targets.iter().map(|(target, keys)| {
            let mut keys: Vec<_> = keys.iter().collect_vec();
            sort::by(&mut keys, |a, b| a.0.cmp(&b.0));
            let keys = keys.iter().map(|(key, value)| match value {
                HintValue::Int(v) => format!("{key} = {v}"),
                HintValue::Bool(v) => format!("{key} = {v}"),
            });
            format!("{target} = {{{}}}", join(keys, ", "))
        });
        write!(f, "<{}>", join(inner, ", "))
    }
}
