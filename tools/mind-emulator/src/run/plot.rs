//! Directory entries over time, a line for each mode, as SVG (the paper's figure 7, left).

use anyhow::{Context as _, Result};
use plotters::prelude::{
    BLACK, ChartBuilder, Color as _, IntoDrawingArea as _, LineSeries, Palette as _, Palette99,
    PathElement, SVGBackend, SeriesLabelPosition, WHITE,
};

use crate::system::{Outcome, outcome::Sample};

/// Width and height, in pixels.
const SIZE: (u32, u32) = (960, 540);

/// Draws the slots of all modes that have a directory.
///
/// # Errors
///
/// When that cannot be drawn.
pub fn entries_over_time(outcomes: &[Outcome]) -> Result<String> {
    let mut svg = String::new();
    draw(outcomes, &mut svg).context("cannot draw directory entries over time")?;
    Ok(svg)
}

fn draw(outcomes: &[Outcome], svg: &mut String) -> Result<()> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let with_directory = outcomes.iter().filter(|outcome| outcome.directory.most > 0);
    let samples = || {
        with_directory
            .clone()
            .flat_map(|outcome| &outcome.directory.over_time)
    };
    let seconds = |sample: &Sample| sample.ms / 1e3;
    // No range is empty.
    let last = samples().map(seconds).fold(1e-6, f64::max);
    let most = samples()
        .map(|sample| sample.slots)
        .max()
        .unwrap_or(0)
        .max(1);
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..last, 0.0..f64::from(most) * 1.05)?;
    chart
        .configure_mesh()
        .x_desc("modelled time, s")
        .y_desc("directory entries")
        .y_label_formatter(&|entries| format!("{entries:.0}"))
        .draw()?;
    for (number, outcome) in with_directory.clone().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let points = outcome.directory.over_time.iter();
        let points = points.map(|sample| (seconds(sample), f64::from(sample.slots)));
        let from_the_start = [(0.0, 0.0)].into_iter().chain(points);
        chart
            .draw_series(LineSeries::new(from_the_start, color.stroke_width(2)))?
            .label(outcome.mode.clone())
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 20, y)], color.stroke_width(2))
            });
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
