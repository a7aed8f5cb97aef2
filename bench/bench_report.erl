%% The figures as a Markdown report and as JSON: the same numbers, from the same places.
-module(bench_report).

-export([markdown/1, json/1, floor_title/1]).

-import(bench_markdown, [table/2, us/1, ms/1, mib/1, ratio/1]).

%% ---- what both are made of ------------------------------------------------------------------

stock(#{floor := Rows}) ->
    [{Name, Samples} || {Name, Samples} <- Rows, Name =/= "reused", Name =/= "own"].

floor_p50(Name, #{floor := Rows}) ->
    {_, Samples} = lists:keyfind(Name, 1, Rows),
    p50(Samples).

stock_best(Report) -> lists:min([p50(Samples) || {_, Samples} <- stock(Report)]).

%% With file calls as WASI makes them when it isn't told otherwise.
stock_defaults(Report) ->
    lists:min([p50(Samples) || {Name, Samples} <- stock(Report), lists:suffix("defaults", Name)]).

p50(Samples) -> bench_stats:us(bench_stats:median(Samples)).

total_p50({_, #{single := Single}}) -> maps:get(p50, proplists:get_value(total, Single)).

%% Of the fastest runner that was measured.
ratios(#{runners := [First | Others] = Runners} = Report) ->
    Faster = fun(A, B) -> case total_p50(A) < total_p50(B) of true -> A; false -> B end end,
    Best = lists:foldl(Faster, First, Others),
    Ours = total_p50(Best),
    Reused = floor_p50("reused", Report),
    [{to_floor, Ours / floor_p50("own", Report)},
     {stock_to_ours, stock_best(Report) / Ours},
     {stock_defaults_to_ours, stock_defaults(Report) / Ours},
     {isolation_tax, (Ours - Reused) / Reused}]
        ++ throughputs(Best) ++ host_calls(Runners).

%% How much many callers keep of the best row.
throughputs({_, #{concurrent := Rows}}) ->
    Most = lists:max([PerS || #{requests_per_s := PerS} <- Rows]),
    [{Key, PerS / Most} || {Key, N} <- [{throughput_14, 14}, {throughput_28, 28}],
                           #{callers := Callers, requests_per_s := PerS} <- Rows, Callers =:= N].

host_calls(Runners) ->
    Of = fun(Runner, Key) ->
        #{host_call := #{Key := Micros}} = proplists:get_value(Runner, Runners),
        Micros
    end,
    [{Name, Of(thread, Key) / Of(scheduler, Key)}
     || {Name, Key} <- [{host_call_1, idle}, {host_call_14, callers_14}],
        [] =:= [thread, scheduler] -- proplists:get_keys(Runners)].

%% ---- JSON -----------------------------------------------------------------------------------

%% @doc Microseconds, unless a name says otherwise.
-spec json(map()) -> bench_json:json().
json(#{prepare := Prepare, cold_start_ms := Cold, runners := Runners} = Report) ->
    {bench_host:facts() ++
     [{prepare, object([preinit_ms, preinit_bytes, compile_ms, artifact_bytes,
                        deserialize_file_ms], Prepare)},
      {cold_start_ms, Cold},
      {runners, {[{Name, runner(Runner)} || {Name, Runner} <- Runners]}},
      {floor, {[{reused_handle, {[{p50, floor_p50("reused", Report)}]}},
                {own_total, {[{p50, floor_p50("own", Report)}]}},
                {stock_best_total, {[{p50, stock_best(Report)}]}},
                {stock, [{[{name, unicode:characters_to_binary(Name)}, {p50, p50(Samples)}]}
                         || {Name, Samples} <- stock(Report)]}]}},
      {ratios, {ratios(Report)}}]}.

runner(#{single := Single, concurrent := Concurrent, keep_0 := Keep0, host_call := HostCall,
         resident := #{rss := Rss}, deadline := Deadline, isolation := Isolation,
         long_schedule := Long}) ->
    {[{single, {[{Part, object([p50, p90, p99], Summary)} || {Part, Summary} <- Single]}},
      {concurrent, [object([callers, requests_per_s, p50, p99], Row) || Row <- Concurrent]},
      {keep_resident_0_total, object([p50, p99], Keep0)},
      {host_call, object([idle, callers_14], HostCall)},
      {resident_bytes_per_instance, round(Rss)},
      {deadline_over_ms, object([p50, p99, max], Deadline)},
      {long_schedule, Long},
      {isolation, object([globals, files], Isolation)}]}.

object(Keys, Map) -> {[{Key, maps:get(Key, Map)} || Key <- Keys]}.

%% ---- Markdown -------------------------------------------------------------------------------

%% @doc The report for people.
-spec markdown(map()) -> unicode:chardata().
markdown(#{runners := Runners, options := #{svg := Svg, deadlines := Deadlines}} = Report) ->
    [heading(Report), prepared(Report),
     [[single(Runner), concurrent(Runner), others(Runner, Deadlines)] || Runner <- Runners],
     floor_rows(Report), ratio_rows(Report), bench_pictures:links(Svg)].

heading(#{options := #{requests := Requests, seconds := Seconds}}) ->
    ["# Every request in a fresh CPython\n\n", bench_host:line(),
     io_lib:format("~b requests of each row with one caller, in turns; ~b s of each concurrent "
                   "row, in turns.~nPercentiles are of real samples. Every result was checked.~n",
                   [Requests, Seconds])].

prepared(#{prepare := #{preinit_ms := Preinit, preinit_bytes := PreinitBytes,
                        compile_ms := Compile, artifact_bytes := ArtifactBytes,
                        deserialize_file_ms := Load}, cold_start_ms := Cold}) ->
    ["\n## Preparation\n\n",
     table(["step", "time", "size"],
           [["preinit", ms(Preinit), mib(PreinitBytes)],
            ["compile (size: the artifact)", ms(Compile), mib(ArtifactBytes)],
            ["deserialize_file", ms(Load), ""],
            ["a request without pre-initialization", ms(Cold), ""]])].

single({Name, #{single := Single, keep_0 := Keep0}}) ->
    Row = fun(Title, #{p50 := P50, p90 := P90, p99 := P99}) ->
        [Title, us(P50), us(P90), us(P99)]
    end,
    ["\n## One caller, runner ", atom_to_list(Name), "\n\n",
     table(["us", "p50", "p90", "p99"],
           [Row(atom_to_list(Part), Summary) || {Part, Summary} <- Single]
           ++ [Row("total, keep_resident 0", Keep0)])].

concurrent({Name, #{concurrent := Rows}}) ->
    ["\n## Concurrent callers, runner ", atom_to_list(Name), "\n\n",
     table(["callers", "requests/s", "p50 us", "p99 us"],
           [[integer_to_list(N), integer_to_list(round(PerS)), us(P50), us(P99)]
            || #{callers := N, requests_per_s := PerS, p50 := P50, p99 := P99} <- Rows])].

others({Name, #{host_call := #{idle := Idle, callers_14 := Busy},
                resident := #{rss := Rss, pss := Pss},
                deadline := #{p50 := Late, p99 := Later, max := Latest}, long_schedule := Long,
                isolation := #{globals := Globals, files := Files}}}, Deadlines) ->
    ["\n## Other figures, runner ", atom_to_list(Name), "\n\n",
     table(["figure", "value"],
           [["host call, one caller", [us(Idle), " us"]],
            ["host call, 14 callers", [us(Busy), " us"]],
            ["resident memory per live instance", mib(Rss)],
            ["the same without its share of shared pages", mib(Pss)],
            ["beyond timeout => 50 of an endless loop, p50", ms(Late)],
            [io_lib:format("the same, p99 of ~b", [Deadlines]), ms(Later)],
            ["the same, max", ms(Latest)],
            [io_lib:format("more than ~b ms on a scheduler", [bench_watch:threshold_ms()]),
             [integer_to_list(Long), " times"]],
            ["isolation of globals", holds(Globals)],
            ["isolation of files", holds(Files)]])].

floor_rows(#{floor := Rows}) ->
    ["\n## The same work in plain Rust, same run\n\n",
     table(["row", "p50 us"],
           [[floor_title(Name), us(p50(Samples))] || {Name, Samples} <- Rows])].

%% @doc What a row of the floor program is called.
-spec floor_title(string()) -> string().
floor_title("reused") -> "a reused instance's handle";
floor_title("own") -> "a fresh instance from our memory";
floor_title(Name) -> "Wasmtime's pool, " ++ Name.

ratio_rows(Report) ->
    ["\n## Ratios\n\n",
     table(["ratio", "value", "aim", "meaning"],
           [[atom_to_list(Name), ratio(Value) | meaning(Name)]
            || {Name, Value} <- ratios(Report)])].

meaning(to_floor) -> ["<= 1.15", "our request to a fresh instance in plain Rust"];
meaning(stock_to_ours) -> [">= 1.7", "the best row of Wasmtime's pool to our request"];
meaning(stock_defaults_to_ours) -> [">= 3.5", "the best of those with WASI's defaults"];
meaning(isolation_tax) -> ["<= 0.5", "what our request adds to a reused instance's handle"];
meaning(throughput_14) -> [">= 0.95", "requests/s of 14 callers to the best row"];
meaning(throughput_28) -> [">= 0.95", "requests/s of 28 callers to the best row"];
meaning(host_call_1) -> [">= 8", "a host call, thread to scheduler, one caller"];
meaning(host_call_14) -> [">= 20", "the same with 14 callers"].

holds(true) -> "yes";
holds(false) -> "NO".
