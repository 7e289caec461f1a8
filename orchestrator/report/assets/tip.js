// What is told of the point under the pointer. plotly's own labels are cut on a phone, and left out where they are tall.

const LONGEST = 300;

const oneLine = (text) => plainCut(String(text).replace(/\s+/g, " "), LONGEST);

function plainCut(text, limit = 200) {
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

// A title and pairs of name and text, as one string that a trace can carry.
function told(title, pairs) {
  return [oneLine(title), ...pairs.map(([name, text]) => `${oneLine(name)}\t${oneLine(text)}`)].join("\n");
}

function fillTip(tip, text) {
  tip.replaceChildren(...text.split("\n").map((line, i) => {
    const [name, value] = line.split("\t");
    const made = document.createElement("div");
    if (i === 0) made.className = "title";
    made.textContent = value === undefined ? name : `${name}: `;
    if (value !== undefined) {
      const strong = document.createElement("b");
      strong.textContent = value;
      made.append(strong);
    }
    return made;
  }));
}

// Beside the pointer, inside the window.
function placeTip(tip, { clientX, clientY }) {
  const { width, height } = tip.getBoundingClientRect();
  const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
  const right = clientX + 14 + width <= wide ? clientX + 14 : clientX - 14 - width;
  tip.style.left = `${Math.max(4, Math.min(right, wide - width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(clientY + 14, high - height - 4))}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

function tellOf(place) {
  place.on("plotly_hover", ({ points, event }) => {
    const text = points[0].customdata;
    if (!text) return;
    const tip = document.getElementById("tip");
    fillTip(tip, text);
    tip.hidden = false;
    placeTip(tip, event);
  });
  place.on("plotly_unhover", hideTip);
}
