use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Latent, Latents, Order};

use super::decode::table;
use super::{Rows, attended, dot};
use crate::support::{close, device, random};

/// Heads, latent and rotated columns.
type Extents = [usize; 3];

/// Pages of one token are a list of chosen ones.
fn decodes<T: Number>(
    [heads, latent, rotated]: Extents,
    lengths: &[usize],
    page: Option<usize>,
    parts: usize,
    tolerance: f64,
) -> ct::Result<()> {
    let (batch, dim, longest) = (lengths.len(), latent + rotated, lengths.iter().copied().max().unwrap_or(0));
    let of_page = page.unwrap_or(longest + 3);
    let wide = page.map_or(1, |page| longest.div_ceil(page) + 1);
    let (numbers, pages) = match page {
        Some(page) => table(5, lengths, page, wide),
        None => ((0..batch as i32).collect(), batch),
    };
    let (q, q_of) = random::<T, 3>(1, [batch, heads, dim], 2.0)?;
    let (vectors, of) = random::<T, 3>(2, [pages, of_page, dim], 2.0)?;
    let table = page.map(|_| device().array(&numbers, [batch, wide])).transpose()?;
    let of_device: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
    let of_device = device().array(&of_device, [batch])?;
    let scale = 1.5 / (dim as f64).sqrt();
    let decode = Latent::new(scale as f32, latent).parts(parts);
    let order = match &table {
        None => Order::Contiguous,
        Some(table) if page == Some(1) => Order::Chosen(table.view()),
        Some(table) => Order::Pages(table.view()),
    };
    let latents = Latents { vectors: vectors.view(), order, lengths: of_device.view() };
    let mut scratch = decode.scratch(device(), [batch, heads, dim], &latents)?;
    let mut out = device().full([batch, heads, latent], T::from_f64(7.0))?;
    decode.launch(&device().default_stream(), q.view(), latents, out.view_mut(), &mut scratch)?;
    let mut want = Vec::new();
    for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let row = |token: usize| {
            let page = numbers[sequence * wide + token / of_page] as usize;
            Rows { values: &of, dim }.row(page * of_page + token % of_page)
        };
        let q = Rows { values: &q_of, dim }.row(sequence * heads + head);
        let scores: Vec<_> = (0..lengths[sequence]).map(|j| (dot(q, row(j)) * scale, &row(j)[..latent])).collect();
        want.extend(attended(&scores, None, latent).0);
    }
    close(&out, &want, tolerance, tolerance);
    Ok(())
}

#[test]
fn contiguous_pages_and_chosen() -> ct::Result<()> {
    for page in [None, Some(1), Some(16), Some(64), Some(128)] {
        decodes::<f16>([6, 64, 16], &[150, 0, 33], page, 1, 4e-3)?;
        decodes::<bf16>([16, 128, 32], &[300, 7], page, 3, 3e-2)?;
    }
    decodes::<f16>([72, 128, 64], &[70], Some(64), 2, 4e-3)?;
    for page in [Some(1), Some(64)] {
        decodes::<f16>([4, 512, 64], &[140], page, 2, 4e-3)?;
        decodes::<f16>([4, 64, 32], &[70, 20], page, 1, 4e-3)?;
    }
    Ok(())
}

#[test]
fn wrong_arguments_are_errors() -> ct::Result<()> {
    let (q, vectors) = (device().zeros::<f16, 3>([1, 4, 80])?, device().zeros::<f16, 3>([1, 8, 80])?);
    let (lengths, mut out) = (device().zeros([1])?, device().zeros([1, 4, 60])?);
    let latents = Latents { vectors: vectors.view(), order: Order::Contiguous, lengths: lengths.view() };
    let latent = Latent::new(1.0, 60);
    let mut scratch = latent.scratch(device(), [1, 4, 80], &latents)?;
    let stream = device().default_stream();
    let text = latent.launch(&stream, q.view(), latents, out.view_mut(), &mut scratch).unwrap_err().to_string();
    assert!(text.contains("60 latent columns: a multiple of 64"), "{text}");
    Ok(())
}
