// What a reader of this page or picture would stumble over: a list of sentences, empty when all is well.
// Runs in the page as it stands and changes nothing of it.
(() => {
  const found = new Set();
  const width = document.documentElement.clientWidth;
  const alone = document.documentElement.localName === "svg";
  const error = document.querySelector("parsererror");
  if (error) return [`no picture: ${error.textContent.trim()}`];
  const words = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 40)}"`;
  const meet = (a, b, x, y) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > x && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > y;
  const inside = (a, b, by) =>
    a.left >= b.left - by && a.right <= b.right + by && a.top >= b.top - by && a.bottom <= b.bottom + by;
  const style = (element) => getComputedStyle(element);
  const scrolls = (element) => {
    for (let up = element; up && up !== document.body; up = up.parentElement) {
      if (/auto|scroll/.test(style(up).overflowX)) return up;
    }
    return null;
  };

  // Colours: [red, green, blue, opacity].
  const colour = (text) => {
    const parts = (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    return [parts[0], parts[1], parts[2], parts.length > 3 ? parts[3] : 1];
  };
  const over = (top, below) => {
    const mixed = [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
    return [...mixed, 1];
  };
  const light = (of) => {
    const [r, g, b] = of.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  // Source: WCAG 2.2, "contrast ratio".
  const contrast = (a, b) => {
    const [one, other] = [light(a), light(b)];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  const paper = (element) => {
    const layers = [];
    for (let up = element; up; up = up.parentElement) {
      if (!(up instanceof SVGElement)) layers.push(colour(style(up).backgroundColor));
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };

  // Pictures.
  const pictures = alone ? [document.documentElement] : [...document.querySelectorAll("svg.chart")];
  const boxOf = (picture) => (alone ? { left: 0, top: 0, right: picture.width.baseVal.value, bottom: picture.height.baseVal.value } : picture.getBoundingClientRect());
  const marksOf = (picture) =>
    [...picture.querySelectorAll("rect, circle, polyline, line, path")].filter((mark) => !mark.matches(".paper, .grid, .rule, .scale"));
  const clips = (element, picture) => {
    const all = [];
    for (let up = element.parentElement; up && up !== picture; up = up.parentElement) {
      if (up.localName === "svg" && style(up).overflow !== "visible") all.push(up);
    }
    return all.map((up) => {
      const matrix = up.parentElement.getScreenCTM();
      const [x, y, w, h] = [up.x, up.y, up.width, up.height].map((length) => length.baseVal.value);
      return { left: x + matrix.e, top: y + matrix.f, right: x + w + matrix.e, bottom: y + h + matrix.f };
    });
  };
  const behind = (text, picture) => {
    // Letters with an edge of their own bring their ground with them.
    if (parseFloat(style(text).strokeWidth) >= 3 && style(text).stroke !== "none") return colour(style(text).stroke);
    const box = text.getBoundingClientRect();
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    let below = alone ? sheet : paper(picture.parentElement);
    for (const shape of picture.querySelectorAll("rect, circle")) {
      const under = shape.getBoundingClientRect();
      const before = shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (before && under.left <= x && x <= under.right && under.top <= y && y <= under.bottom) {
        const fill = colour(style(shape).fill);
        below = over([...fill.slice(0, 3), fill[3] * style(shape).fillOpacity * style(shape).opacity], below);
      }
    }
    return below;
  };
  const opaque = (mark) => style(mark).fillOpacity === "1" && style(mark).opacity === "1";
  const drawn = document.querySelector("rect.paper");
  const sheet = drawn ? colour(style(drawn).fill) : [255, 255, 255, 1];
  for (const picture of pictures) {
    const name = picture.getAttribute("aria-label") || "the picture";
    const box = boxOf(picture);
    const marks = marksOf(picture);
    const texts = [...picture.querySelectorAll("text")].filter((text) => text.textContent.trim());
    if (!marks.length && !picture.querySelector(".empty")) found.add(`nothing is drawn in ${name}`);
    for (const mark of marks) {
      const place = mark.getBoundingClientRect();
      const where = `${mark.localName}.${mark.getAttribute("class")} of ${name}`;
      if (![box, ...clips(mark, picture)].every((around) => inside(place, around, 1))) found.add(`outside of its picture: ${where}`);
      const seen = style(mark);
      const ground = alone ? sheet : paper(picture.parentElement);
      const plain = mark.localName !== "line" && opaque(mark) && (place.width || mark.localName === "polyline");
      const paints = [seen.fill, seen.stroke].filter((paint) => paint !== "none").map((paint) => over(colour(paint), ground));
      if (plain && Math.max(...paints.map((paint) => contrast(paint, ground))) < 3) found.add(`hard to see against its ground: ${where}`);
    }
    const places = texts.map((text) => text.getBoundingClientRect());
    texts.forEach((text, at) => {
      const place = places[at];
      if (!place.width) found.add(`no font has ${words(text.textContent)}`);
      if (![box, ...clips(text, picture)].every((around) => inside(place, around, 1))) found.add(`cut off: ${words(text.textContent)} in ${name}`);
      for (let other = at + 1; other < texts.length; other += 1) {
        if (meet(place, places[other], 1, 3)) found.add(`one over the other: ${words(text.textContent)} and ${words(texts[other].textContent)} in ${name}`);
      }
      for (const mark of marks.filter((mark) => mark.localName === "rect" && opaque(mark))) {
        const bar = mark.getBoundingClientRect();
        if (meet(place, bar, 1, 3) && !inside(place, bar, 3)) found.add(`a bar runs into ${words(text.textContent)} in ${name}`);
      }
      const ground = behind(text, picture);
      if (contrast(over(colour(style(text).fill), ground), ground) < 4.5) found.add(`hard to read: ${words(text.textContent)} in ${name}`);
    });
    const keys = picture.closest(".card")?.querySelectorAll(".legend .key") || picture.querySelectorAll("rect.key");
    const classes = [...keys].map((key) => key.getAttribute("class"));
    if (new Set(classes).size < classes.length) found.add(`two series look alike in ${name}`);
  }
  if (alone) return [...found];

  // The page around them.
  if (document.documentElement.scrollWidth > width) found.add(`the page is wider than its window: ${document.documentElement.scrollWidth} px`);
  for (const table of document.querySelectorAll("table")) {
    const around = scrolls(table);
    if (!around) found.add(`a table that cannot be scrolled: ${words(table.textContent)}`);
  }
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("svg, script, style")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const place of range.getClientRects()) if (place.width) texts.push({ node, parent, place });
  }
  for (const { node, parent, place } of texts) {
    const around = scrolls(parent);
    const card = parent.closest(".card, .tile") || document.body;
    if (!around && !inside(place, card.getBoundingClientRect(), 1)) found.add(`cut off: ${words(node.data)}`);
    const ground = paper(parent);
    if (contrast(over(colour(style(parent).color), ground), ground) < 4.5) found.add(`hard to read: ${words(node.data)}`);
  }
  texts.forEach((one, at) => {
    for (let next = at + 1; next < texts.length; next += 1) {
      const other = texts[next];
      // What is scrolled away behind a fixed first column is not hidden for good.
      const scrolled = scrolls(one.parent) || scrolls(other.parent);
      if (!scrolled && meet(one.place, other.place, 1, 3)) found.add(`one over the other: ${words(one.node.data)} and ${words(other.node.data)}`);
    }
  });
  return [...found];
})()
