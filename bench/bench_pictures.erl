%% The report's two pictures: what a request is made of, and requests per second over callers.
-module(bench_pictures).

-export([writable/1, write/2, links/1]).

-define(LATENCY, "reactor-latency.svg").
-define(THROUGHPUT, "reactor-throughput.svg").

%% @doc Says before a long run that its pictures would have nowhere to go.
-spec writable(none | file:filename()) -> ok.
writable(none) -> ok;
writable(Dir) ->
    case filelib:ensure_dir(filename:join(Dir, "x")) of
        ok -> ok;
        {error, Reason} -> bench_guest:fail("~ts: ~ts", [Dir, file:format_error(Reason)])
    end.

%% @doc Draws both into a folder.
-spec write(none | file:filename(), map()) -> ok.
write(none, _) -> ok;
write(Dir, Report) ->
    written(Dir, ?LATENCY, bench_svg:bars(latency(Report))),
    written(Dir, ?THROUGHPUT, bench_svg:lines(throughput(Report))).

written(Dir, Name, Svg) ->
    Path = filename:join(Dir, Name),
    case file:write_file(Path, Svg) of
        ok -> ok;
        {error, Reason} -> bench_guest:fail("~ts: ~ts", [Path, file:format_error(Reason)])
    end.

%% @doc The pictures in the report, when they are drawn.
-spec links(none | file:filename()) -> iodata().
links(none) -> [];
links(_) ->
    ["\n![What a request takes](" ?LATENCY ")\n\n"
     "![Requests per second over concurrent callers](" ?THROUGHPUT ")\n"].

latency(#{runners := Runners, floor := Floor}) ->
    Parts = [instantiate, handle, destroy],
    Ours = fun({Runner, #{single := Single}}) ->
        P50 = fun(Part) -> maps:get(p50, proplists:get_value(Part, Single)) / 1000 end,
        {"a fresh instance, runner " ++ atom_to_list(Runner), [P50(Part) || Part <- Parts],
         label(P50(total))}
    end,
    Plain = fun({Name, Samples}) ->
        P50 = bench_stats:ms(bench_stats:median(Samples)),
        {bench_report:floor_title(Name), {plain, P50}, label(P50)}
    end,
    #{title => "A request in CPython: p50 with one caller", axis => "ms",
      legend => [atom_to_list(Part) || Part <- Parts], plain => "plain Rust, all of it",
      rows => lists:map(Ours, Runners) ++ lists:map(Plain, Floor)}.

label(Ms) -> io_lib:format("~.2f ms", [float(Ms)]).

throughput(#{runners := Runners}) ->
    #{title => "Requests per second over concurrent callers", x => "callers", y => "requests/s",
      rows => [{"runner " ++ atom_to_list(Runner),
                [{N, PerS} || #{callers := N, requests_per_s := PerS} <- Rows]}
               || {Runner, #{concurrent := Rows}} <- Runners]}.
