//! Checks of the shapes of attention.

use cutlet as ct;

use crate::check::require;

/// Shapes of queries, keys, values, result and logarithms: (batch, heads, rows, dim), or (rows,
/// heads, dim) of packed sequences.
pub struct Shapes<const R: usize, const L: usize> {
    pub qkv: [[usize; R]; 3],
    pub out: [usize; R],
    /// (batch, heads, rows), or (heads, rows).
    pub logs: Option<[usize; L]>,
}

/// Extents of attention. Packed sequences are a batch of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    pub batch: usize,
    /// Heads of queries and of keys.
    pub heads: [usize; 2],
    /// Queries and keys.
    pub rows: [usize; 2],
    /// Numbers of a key and of a value.
    pub dims: [usize; 2],
}

impl Extents {
    /// Heads of queries that share a head of keys.
    pub fn group(&self) -> usize {
        self.heads[0] / self.heads[1]
    }
}

/// Checks the factor of scores.
#[track_caller]
pub fn check_scale(scale: f32) -> ct::Result<()> {
    require(scale > 0.0 && scale.is_finite(), || format!("scores times {scale}: a number above 0"))
}

/// Checks the options of [`Prefill`](super::Prefill) and of its gradients.
#[track_caller]
pub fn check_options(scale: f32, window: Option<usize>, softcap: Option<f32>) -> ct::Result<()> {
    check_scale(scale)?;
    require(window != Some(0), || "a window of 0 keys: at least 1".into())?;
    require(softcap.is_none_or(|cap| cap > 0.0 && cap.is_finite()), || {
        format!("a softcap of {softcap:?}: a number above 0")
    })
}

/// Returns batch, heads, rows and dim.
fn extents<const R: usize>(shape: [usize; R]) -> [usize; 4] {
    match shape[..] {
        [batch, heads, rows, dim] => [batch, heads, rows, dim],
        [rows, heads, dim] => [1, heads, rows, dim],
        _ => unreachable!("shapes have rank 3 or 4"),
    }
}

impl<const R: usize, const L: usize> Shapes<R, L> {
    /// Checks the shapes. `widest` is the largest dim.
    #[track_caller]
    pub fn check(&self, widest: usize) -> ct::Result<Extents> {
        let Shapes { qkv: [q, k, v], out, logs } = *self;
        let ([batch, heads, queries, dim], [of, key_heads, keys, key_dim]) = (extents(q), extents(k));
        let [.., values] = extents(v);
        require(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads of queries, {key_heads} of keys: the one is a multiple of the other")
        })?;
        require(dim == key_dim, || format!("queries of {dim} numbers, keys of {key_dim}: both are equal"))?;
        require(batch == of && extents(v) == [of, key_heads, keys, values], || {
            format!("Q of shape {q:?}, K of {k:?}, V of {v:?}")
        })?;
        require(extents(out) == [batch, heads, queries, values], || {
            format!("a result of shape {out:?} for Q of {q:?}, V of {v:?}")
        })?;
        let wanted = [batch, heads, queries];
        require(logs.is_none_or(|logs| logs[..] == wanted[3 - L..]), || {
            format!("logarithms of shape {logs:?} for Q of {q:?}")
        })?;
        require(dim > 0 && dim.max(values) <= widest, || {
            format!("queries of {dim} numbers, values of {values}: 1 to {widest}")
        })?;
        Ok(Extents { batch, heads: [heads, key_heads], rows: [queries, keys], dims: [dim, values] })
    }
}
