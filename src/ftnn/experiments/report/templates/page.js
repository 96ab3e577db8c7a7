"use strict";
(() => {
  const details = JSON.parse(document.getElementById("details").textContent);
  const minus = (text) => String(text).replace("-", "−");
  const percent = (value) => (value === null ? "" : value.toFixed(2));
  const signed = (value) => (Math.abs(value) < 0.005 ? "0.00" : minus((value > 0 ? "+" : "") + value.toFixed(2)));
  const make = (tag, text, kind) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  // --- sorting ---
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    const number = text === "" ? NaN : Number(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b, sign) => {
    // Missing values go last in both directions.
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b));
  };
  const sortBy = (button) => {
    const head = button.closest("th");
    const table = button.closest("table");
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const column = Number(button.dataset.col);
    const rows = [...body.rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => compare(a, b, sign));
    body.append(...rows.map(([, row]) => row));
  };

  // --- filtering ---
  const search = document.getElementById("search");
  const boxes = [...document.querySelectorAll("input[name=activation]")];
  const status = document.getElementById("matches");
  const filter = () => {
    const query = search.value.trim().toLowerCase();
    let matches = 0;
    for (const row of document.querySelectorAll("table.paper tbody tr")) {
      row.hidden = !row.dataset.text.includes(query);
      matches += !row.hidden;
    }
    for (const table of document.querySelectorAll("table.paper"))
      for (const box of boxes) table.classList.toggle(`hide-${box.value}`, !box.checked);
    status.textContent = query ? `${matches} rows match` : "";
  };
  search.addEventListener("input", filter);
  for (const box of boxes) box.addEventListener("change", filter);
  filter(); // browsers may restore the query after a reload

  // --- all rates of a cell ---
  const dialog = document.getElementById("cell");
  const rowOf = (rate, run, first, span) => {
    const row = make("tr");
    if (first) {
      const gamma = make("th", minus(rate.gamma), "n");
      gamma.scope = "row";
      const cells = [gamma];
      const failed = rate.paper && rate.paper[1] === null;
      for (const value of rate.paper ?? [])
        cells.push(make("td", failed ? "×" : percent(value), "n"));
      while (cells.length < 3) cells.push(make("td", "–", "n"));
      for (const cell of cells) cell.rowSpan = span;
      row.append(...cells);
    }
    if (!run) {
      const none = make("td", "not run", "empty");
      none.colSpan = 8;
      row.append(none);
      return row;
    }
    const [seed, lwt, ft, best, seconds, failed, validation] = run;
    const paper = rate.paper ? rate.paper[1] : null;
    const difference = !failed && ft !== null && paper !== null ? signed(ft - paper) : "";
    for (const text of [seed, percent(lwt), percent(ft), difference, percent(validation), percent(best), seconds === null ? "" : seconds.toFixed(1)])
      row.append(make("td", text, "n"));
    row.append(make("td", failed ? `× ${failed}` : "trained", failed ? "failed wide" : "wide"));
    return row;
  };
  const open = (id) => {
    const cell = details[id];
    document.getElementById("cell-title").textContent = cell.title;
    document.getElementById("cell-formula").textContent = cell.formula;
    const body = document.getElementById("cell-rates");
    body.replaceChildren();
    for (const rate of cell.rates) {
      const runs = rate.runs.length ? rate.runs : [null];
      runs.forEach((run, place) => {
        const row = rowOf(rate, run, place === 0, runs.length);
        row.classList.toggle("chosen", rate.gamma === cell.gamma);
        body.append(row);
      });
    }
    hide();
    dialog.showModal();
  };
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest(".close")) dialog.close();
  });

  // --- tooltips, on hover and focus ---
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  const describe = (cell) => {
    if (cell.gamma === null) return "not run";
    const rate = cell.rates.find((each) => each.gamma === cell.gamma);
    const lines = [`γ = ${minus(cell.gamma)}` + (cell.paper_failed ? " (the paper failed at every γ)" : "")];
    const runs = rate ? rate.runs : [];
    if (!runs.length) return `${lines[0]}\nnot run`;
    for (const [seed, , ft, , seconds, failed] of runs)
      lines.push(`seed ${seed}: ${failed ? `× ${failed}` : `${percent(ft)} %`}` + (seconds === null ? "" : `, ${seconds.toFixed(1)} s`));
    const trained = runs.filter((run) => !run[5] && run[2] !== null).map((run) => run[2]);
    if (trained.length > 1) lines.push(`spread over seeds: ${(Math.max(...trained) - Math.min(...trained)).toFixed(2)}`);
    return lines.join("\n");
  };
  const show = (button) => {
    const cell = details[button.dataset.id];
    tip.textContent = describe(cell);
    tip.hidden = false;
    const place = button.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(place.left - 8, 8), innerWidth - size.width - 8);
    const below = place.bottom + 8 + size.height < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? place.bottom + 8 : place.top - size.height - 8}px`;
  };
  const buttonOf = (target) => {
    const own = target.closest(".open");
    if (own) return own;
    const cell = target.closest("table.paper td");
    return cell && cell.parentElement.querySelector(`[data-a=${cell.dataset.a}] .open`);
  };
  document.addEventListener("mouseover", (event) => {
    const button = buttonOf(event.target);
    if (button) show(button); else hide();
  });
  document.addEventListener("focusin", (event) => {
    const button = event.target.closest(".open");
    if (button) show(button); else hide();
  });
  addEventListener("scroll", () => {
    // Keep the tooltip if moving the focus scrolled the page.
    const focused = document.activeElement;
    if (!tip.hidden && focused.matches(".open") && !dialog.open) show(focused); else hide();
  }, { passive: true, capture: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  document.addEventListener("click", (event) => {
    const sorting = event.target.closest("button[data-col]");
    if (sorting) return sortBy(sorting);
    const button = buttonOf(event.target);
    if (button) open(button.dataset.id);
  });
})();
