//! How alike two orders are.

/// Places of numbers in their order, from the smallest; equal ones share the middle of theirs.
fn places(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut places = vec![0.0; numbers.len()];
    let mut first = 0;
    while first < order.len() {
        let alike = |&&index: &&usize| numbers[index] == numbers[order[first]];
        let count = order[first..].iter().take_while(alike).count();
        for &index in &order[first..first + count] {
            places[index] = first as f64 + (count - 1) as f64 / 2.0;
        }
        first += count;
    }
    places
}

/// Spearman's rank correlation of two lists; none of fewer than three numbers, or of equal ones.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (places(a), places(b));
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (mean_a, mean_b) = (mean(&a), mean(&b));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>();
    let (both, of_a, of_b) =
        (product(&a, mean_a, &b, mean_b), product(&a, mean_a, &a, mean_a), product(&b, mean_b, &b, mean_b));
    (a.len() > 2 && of_a > 0.0 && of_b > 0.0).then(|| both / (of_a * of_b).sqrt())
}
