%% Charts as SVG: stacked bars and lines. Rule: everything that is drawn has a label, and the
%% colours suit a light and a dark page.
-module(bench_svg).

-export([bars/1, lines/1]).
-export_type([bars/0, lines/0]).

%% A bar is a title, the values of its parts in the order of the legend, and a label. A `plain' one
%% has no parts and stands last in the legend.
-type bars() :: #{title := string(), axis := string(), legend := [string()], plain := string(),
                  rows := [{string(), [number(), ...] | {plain, number()}, iodata()}, ...]}.
%% A line is a title and its points.
-type lines() :: #{title := string(), x := string(), y := string(),
                   rows := [{string(), [{pos_integer(), number()}, ...]}, ...]}.

-define(WIDTH, 900).
-define(TOP, 74).
-define(BOTTOM, 56).

%% ---- bars -----------------------------------------------------------------------------------

-define(NAMES, 500).
-define(PLOT, 310).
-define(STEP, 34).
-define(BAR, 20).

%% @doc Horizontal bars, one below the other.
-spec bars(bars()) -> iodata().
bars(#{title := Title, axis := Axis, legend := Legend, plain := Plain, rows := Rows}) ->
    Height = ?TOP + length(Rows) * ?STEP,
    Ticks = ticks(lists:max([total(Values) || {_, Values, _} <- Rows])),
    Scale = ?PLOT / lists:last(Ticks),
    page(Title, Height + ?BOTTOM,
         [legend([{Name, fun(X) -> rect(X, 45, 12, 12, colour(N)) end}
                  || {N, Name} <- numbered(Legend)]
                 ++ [{Plain, fun(X) -> rect(X, 45, 12, 12, "plain") end}]),
          [vertical(Tick, ?NAMES + Tick * Scale, Height) || Tick <- Ticks],
          text(?NAMES + ?PLOT / 2, Height + 42, middle, "soft", Axis),
          [bar(N, Row, Scale) || {N, Row} <- numbered(Rows)]]).

total({plain, Value}) -> Value;
total(Values) -> lists:sum(Values).

bar(N, {Name, Values, Label}, Scale) ->
    Y = ?TOP + N * ?STEP + (?STEP - ?BAR) div 2,
    Base = Y + ?BAR div 2 + 5,
    [text(?NAMES - 10, Base, 'end', "ink", Name), parts(Values, Y, Scale),
     text(?NAMES + total(Values) * Scale + 8, Base, start, "ink", Label)].

parts({plain, Value}, Y, Scale) -> rect(?NAMES, Y, Value * Scale, ?BAR, "plain");
parts(Values, Y, Scale) ->
    Part = fun({N, Value}, X) ->
        {rect(X, Y, Value * Scale, ?BAR, colour(N)), X + Value * Scale}
    end,
    {Rects, _} = lists:mapfoldl(Part, ?NAMES, numbered(Values)),
    Rects.

vertical(Tick, X, Bottom) ->
    [line(X, ?TOP, X, Bottom, "grid"), text(X, Bottom + 20, middle, "soft", number(Tick))].

%% ---- lines ----------------------------------------------------------------------------------

-define(LEFT, 90).
-define(RIGHT, 860).
-define(CEILING, 104).
-define(FLOOR, 360).

%% @doc Lines over a logarithmic axis, whose ticks are where points are.
-spec lines(lines()) -> iodata().
lines(#{title := Title, x := XAxis, y := YAxis, rows := Rows}) ->
    Points = lists:append([Points || {_, Points} <- Rows]),
    Ticks = ticks(lists:max([Y || {_, Y} <- Points])),
    Xs = lists:usort([X || {X, _} <- Points]),
    At = place(hd(Xs), lists:last(Xs), lists:last(Ticks)),
    page(Title, ?FLOOR + ?BOTTOM,
         [legend([{Name, fun(X) -> mark(N, X + 6, 51) end} || {N, {Name, _}} <- numbered(Rows)]),
          [horizontal(Tick, element(2, At({hd(Xs), Tick}))) || Tick <- Ticks],
          [text(element(1, At({X, 0})), ?FLOOR + 20, middle, "soft", number(X)) || X <- Xs],
          text((?LEFT + ?RIGHT) / 2, ?FLOOR + 42, middle, "soft", XAxis),
          text(24, ?CEILING - 18, start, "soft", YAxis),
          [curve(N, lists:map(At, Row)) || {N, {_, Row}} <- numbered(Rows)]]).

%% From values to the page.
place(First, Last, Top) ->
    Wide = max(math:log2(Last / First), 1.0),
    fun({X, Y}) ->
        {?LEFT + 20 + math:log2(X / First) / Wide * (?RIGHT - ?LEFT - 40),
         ?FLOOR - Y / Top * (?FLOOR - ?CEILING)}
    end.

horizontal(Tick, Y) ->
    [line(?LEFT, Y, ?RIGHT, Y, "grid"), text(?LEFT - 10, Y + 4, 'end', "soft", number(Tick))].

curve(N, Points) ->
    Path = lists:join(" ", [[number(X), ",", number(Y)] || {X, Y} <- Points]),
    ["<polyline class=\"line ", colour(N), "\" points=\"", Path, "\"/>\n",
     [mark(N, X, Y) || {X, Y} <- Points]].

%% Lines are told apart without colour, too.
mark(0, X, Y) ->
    ["<circle class=\"", colour(0), "\" cx=\"", number(X), "\" cy=\"", number(Y), "\" r=\"5\"/>\n"];
mark(N, X, Y) ->
    rect(X - 5, Y - 5, 10, 10, colour(N)).

%% ---- parts ----------------------------------------------------------------------------------

page(Title, Height, Body) ->
    Size = io_lib:format("width=\"~b\" height=\"~b\" viewBox=\"0 0 ~b ~b\"",
                         [?WIDTH, Height, ?WIDTH, Height]),
    ["<svg xmlns=\"http://www.w3.org/2000/svg\" ", Size, " role=\"img\">\n<title>", escaped(Title),
     "</title>\n", style(), rect(0, 0, ?WIDTH, Height, "page"),
     text(24, 30, start, "ink title", Title), Body, "</svg>\n"].

style() ->
    ["<style>\ntext { font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }\n"
     ".title { font-size: 16px; font-weight: 600 }\n"
     ".grid { stroke-width: 1 }\n.line { fill: none; stroke-width: 2.5 }\n",
     colours("#ffffff", "#1f2328", "#59636e", "#d8dee4", "#9aa4af",
             ["#0969da", "#d4751a", "#1a7f37", "#8250df"]),
     "@media (prefers-color-scheme: dark) {\n",
     colours("#0d1117", "#e6edf3", "#9198a1", "#2d333b", "#6e7681",
             ["#4493f8", "#f0883e", "#3fb950", "#ab7df8"]),
     "}\n</style>\n"].

colours(Page, Ink, Soft, Grid, Plain, Parts) ->
    Fill = fun(Class, Colour) -> io_lib:format(".~s { fill: ~s }~n", [Class, Colour]) end,
    [Fill("page", Page), Fill("ink", Ink), Fill("soft", Soft), Fill("plain", Plain),
     io_lib:format(".grid { stroke: ~s }~n", [Grid]),
     [[Fill(colour(N), Colour),
       io_lib:format(".line.~s { fill: none; stroke: ~s }~n", [colour(N), Colour])]
      || {N, Colour} <- numbered(Parts)]].

colour(N) -> "c" ++ integer_to_list(N).

legend(Signs) ->
    Entry = fun({Name, Draw}, X) ->
        {[Draw(X), text(X + 18, 56, start, "ink", Name)], X + 42 + 8 * length(Name)}
    end,
    {Entries, _} = lists:mapfoldl(Entry, 24, Signs),
    Entries.

rect(X, Y, Width, Height, Class) ->
    io_lib:format("<rect class=\"~s\" x=\"~s\" y=\"~s\" width=\"~s\" height=\"~s\"/>~n",
                  [Class | [number(N) || N <- [X, Y, Width, Height]]]).

line(X1, Y1, X2, Y2, Class) ->
    io_lib:format("<line class=\"~s\" x1=\"~s\" y1=\"~s\" x2=\"~s\" y2=\"~s\"/>~n",
                  [Class | [number(N) || N <- [X1, Y1, X2, Y2]]]).

text(X, Y, Anchor, Class, Text) ->
    [io_lib:format("<text class=\"~s\" x=\"~s\" y=\"~s\" text-anchor=\"~s\">",
                   [Class, number(X), number(Y), Anchor]), escaped(Text), "</text>\n"].

escaped(Text) ->
    Char = fun($<) -> "&lt;"; ($&) -> "&amp;"; (Other) -> [Other] end,
    unicode:characters_to_binary(lists:map(Char, unicode:characters_to_list(Text))).

%% Round numbers from 0 to at least the largest value: about five steps.
ticks(Max) ->
    Raw = max(Max, 1.0e-9) / 5,
    Power = math:pow(10, math:floor(math:log10(Raw))),
    Step = hd([Nice * Power || Nice <- [1, 2, 2.5, 5, 10], Nice * Power >= Raw * 0.85]),
    [N * Step || N <- lists:seq(0, max(1, ceil(Max / Step - 0.001)))].

numbered(Items) -> lists:zip(lists:seq(0, length(Items) - 1), Items).

%% At most two decimals.
number(N) when is_integer(N) -> integer_to_list(N);
number(N) ->
    case float_to_list(float(N), [{decimals, 2}, compact]) of
        Text -> case lists:suffix(".0", Text) of
            true -> lists:sublist(Text, length(Text) - 2);
            false -> Text
        end
    end.
