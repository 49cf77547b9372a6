// The table of all artefacts: searched, filtered, sorted, and shown a hundred at a time.
// What is shown is said in the address, after #, so that it can be passed on.
"use strict";
(() => {
  const PAGE = 100;
  const $ = (id) => document.getElementById(id);
  const { count, columns, changes } = JSON.parse($("rows").textContent);
  const body = $("artefacts").tBodies[0];
  const heads = [...$("artefacts").tHead.rows[0].cells];
  const filters = ["result", "reason", "kind"];
  const searched = ["name", "why", "reason", "kind", "written by", "model", "policies",
    "optimizer", "notes", "sha256", "out"];
  const texts = new Array(count); // what is searched, in lower case; made when it is asked for
  let state = {};
  let order = []; // the rows that are shown, sorted

  function value(key, row) {
    const column = columns[key];
    return Array.isArray(column) ? column[row] : column.values[column.at[row]];
  }

  function matters(row) {
    return value("changes", row).reduce((sum, each) => sum + changes[each][3], 0);
  }

  // What no document may hold, as keras_mp.markup.escaped replaces it.
  function printable(text) {
    return String(text).replace(/[^\P{Cc}\t\n]|\p{Cs}/gu, "\ufffd");
  }

  // The summary has names as they can be printed only, and so has the address.
  function isOpen(row) {
    return state.row !== "" && printable(value("name", row)) === state.row;
  }

  function element(tag, style, text) {
    const made = document.createElement(tag);
    if (style) made.className = style;
    if (text !== undefined) made.textContent = printable(text);
    return made;
  }

  // A path that may be broken after its slashes.
  function path(into, text) {
    printable(text).split(/(?<=\/)/).forEach((part, i) => {
      if (i) into.append(document.createElement("wbr"));
      into.append(part);
    });
    return into;
  }

  function read() {
    const given = new URLSearchParams(location.hash.slice(1));
    state = Object.fromEntries(["q", ...filters, "sort", "page", "row"].map(
      (key) => [key, given.get(key) ?? ""]));
    state.page = Math.max(1, parseInt(state.page, 10) || 1);
    $("search").value = state.q;
    for (const key of filters) $(key).value = state[key];
  }

  function write() {
    const kept = Object.entries({ ...state, page: state.page === 1 ? "" : state.page }).filter(
      ([, each]) => each);
    const hash = new URLSearchParams(kept).toString();
    try {
      history.replaceState(null, "", `#${hash}`);
    } catch {
      // Where the page is inside another one, the address may not be ours.
    }
  }

  function find() {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const inChanges = words.map((word) => changes.map(
      (each) => `${each[0]} ${each[2]}`.toLowerCase().includes(word)));
    const found = [];
    for (let row = 0; row < count; row++) {
      const isLeft = (key) => state[key] && printable(value(key, row) ?? "") !== state[key];
      if (filters.some(isLeft)) continue;
      if (words.length) {
        texts[row] ??= searched.map((key) => value(key, row) ?? "").join("\n").toLowerCase();
        const has = (word, i) => texts[row].includes(word)
          || value("changes", row).some((each) => inChanges[i][each]);
        if (!words.every(has)) continue;
      }
      found.push(row);
    }
    order = sorted(found);
  }

  function sorted(rows) {
    const key = state.sort.replace(/^-/, "");
    if (!heads.some((each) => each.dataset.key === key)) return rows;
    const of = key === "matters" ? matters : (row) => value(key, row);
    const keys = new Map(rows.map((row) => [row, of(row)]));
    const sign = state.sort.startsWith("-") ? -1 : 1;
    // What is not known is last, either way; what is equal stays as it was.
    return rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return x < y ? -sign : x > y ? sign : 0;
    });
  }

  function show() {
    const pages = Math.max(1, Math.ceil(order.length / PAGE));
    state.page = Math.min(state.page, pages);
    const start = (state.page - 1) * PAGE;
    const rows = order.slice(start, start + PAGE);
    const number = (each) => each.toLocaleString("en");
    const all = number(count);
    const of = order.length === count ? all : `${number(order.length)} found in ${all}`;
    $("shown").textContent = rows.length
      ? `${number(start + 1)} to ${number(start + rows.length)} of ${of}` : `none of ${all}`;
    $("before").disabled = state.page === 1;
    $("after").disabled = state.page === pages;
    for (const each of heads) {
      const key = each.dataset.key;
      each.removeAttribute("aria-sort");
      if (state.sort === key) each.setAttribute("aria-sort", "ascending");
      if (state.sort === `-${key}`) each.setAttribute("aria-sort", "descending");
    }
    body.replaceChildren(...rows.flatMap((row) => {
      const shown = line(row);
      return isOpen(row) ? [shown, details(row)] : [shown];
    }));
  }

  function line(row) {
    const tr = element("tr");
    const [name, result] = [value("name", row), value("result", row)];
    tr.dataset.name = printable(name);
    const th = element("th", "path");
    th.scope = "row";
    const button = path(element("button"), name);
    button.type = "button";
    button.setAttribute("aria-expanded", String(isOpen(row)));
    th.append(button);
    if (value("why", row) !== null && !isOpen(row)) {
      th.append(element("span", "why", value("why", row).slice(0, 200)));
    }
    const numbers = [["bytes", ""], ["seconds", ""], ["memory", " besides-small"]];
    tr.append(
      th,
      element("td", `result ${result.replace(" ", "-")}`,
        value("reason", row) === null ? result : `${result}: ${value("reason", row)}`),
      element("td", "besides-small", value("kind", row) ?? ""),
      ...numbers.map(([key, style]) => element("td", `number${style}`, value(`${key}_text`, row))),
      element("td", "number besides-small", matters(row) || ""),
    );
    return tr;
  }

  function details(row) {
    const tr = element("tr", "details");
    const td = element("td");
    td.colSpan = heads.length;
    const list = element("dl");
    const add = (label, each) => {
      if (each === null || each === "") return;
      const dd = element("dd");
      dd.append(each instanceof Node ? each : printable(each));
      list.append(element("dt", "", label), dd);
    };
    const code = (key) => value(key, row) && element("code", "", value(key, row));
    const notes = value("notes", row).map((each) => element("li", "", each));
    add("why", value("why", row));
    add("changes", told(value("changes", row).map((each) => changes[each])));
    add("notes", notes.length ? listed(notes) : null);
    for (const key of ["model", "policies", "optimizer", "loss scale", "written by", "files"])
      add(key, value(key, row));
    add("sha256", code("sha256"));
    add("became", code("out"));
    for (const key of ["its size", "compared", "when", "run", "migrated with", "options"])
      add(key, value(key, row));
    td.append(list);
    tr.append(td);
    return tr;
  }

  function listed(items) {
    const made = element("ul");
    made.append(...items);
    return made;
  }

  // What a person should read comes first.
  function told(lines) {
    if (!lines.length) return null;
    const first = [...lines.filter((each) => each[3]), ...lines.filter((each) => !each[3])];
    return listed(first.map(([where, kind, what, isRead]) => {
      const item = element("li", isRead ? "matters" : "");
      item.append(element("code", "", where), ` ${printable(kind)}: ${printable(what)}`);
      return item;
    }));
  }

  function change(what) {
    state = { ...state, page: 1, row: "", ...what };
    find();
    show();
    write();
  }

  // The page of the row in the address is the one to begin with.
  function start() {
    read();
    find();
    const at = state.row ? order.findIndex(isOpen) : -1;
    if (at >= 0) state.page = Math.floor(at / PAGE) + 1;
    show();
  }

  let waiting;
  const search = () => {
    clearTimeout(waiting);
    change({ q: $("search").value });
  };
  $("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 150);
  });
  document.querySelector("form.filter").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  for (const key of filters)
    $(key).addEventListener("change", () => change({ [key]: $(key).value }));
  $("before").addEventListener("click", () => change({ page: state.page - 1 }));
  $("after").addEventListener("click", () => change({ page: state.page + 1 }));
  for (const each of heads)
    each.querySelector("button")?.addEventListener("click", () => {
      const key = each.dataset.key;
      const first = key === "name" || key === "result" ? key : `-${key}`;
      const other = first === key ? `-${key}` : key;
      change({ sort: state.sort === first ? other : first });
    });
  body.addEventListener("click", (event) => {
    const tr = event.target.closest("button")?.closest("tr");
    if (!tr) return;
    const row = order[(state.page - 1) * PAGE + [...body.rows].filter(
      (each) => !each.classList.contains("details")).indexOf(tr)];
    const name = printable(value("name", row));
    state.row = state.row === name ? "" : name;
    show();
    write();
    const again = [...body.rows].find((each) => each.dataset.name === name);
    again?.querySelector("button").focus();
  });
  // From the summary to the rows.
  const link = (cell, wanted) => {
    if (!cell) return;
    const to = element("a");
    to.href = `#${new URLSearchParams(wanted)}`;
    to.append(...cell.childNodes);
    to.addEventListener("click", () => $("all").scrollIntoView());
    cell.append(to);
  };
  for (const tr of document.querySelectorAll("#refusals tbody tr"))
    link(tr.cells[0], { result: tr.dataset.result, reason: tr.dataset.reason });
  for (const tr of document.querySelectorAll("#kinds tbody tr"))
    link(tr.cells[0], { kind: tr.dataset.name });
  for (const tr of document.querySelectorAll(".tops tbody tr"))
    link(tr.cells[0], { row: tr.dataset.name });
  for (const tr of document.querySelectorAll("#examples tbody tr"))
    link(tr.cells[1], { row: tr.dataset.name });
  addEventListener("hashchange", start);
  $("all").hidden = false;
  start();
})();
