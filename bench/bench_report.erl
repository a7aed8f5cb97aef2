%% The figures as a Markdown report and as JSON: the same numbers, from the same places.
-module(bench_report).

-export([markdown/1, json/1]).

-import(bench_markdown, [table/2, us/1, ms/1, mib/1, ratio/1]).

%% ---- what both are made of ------------------------------------------------------------------

host() ->
    [{wasmtime, wasmtime:version()}, {otp, list_to_binary(erlang:system_info(otp_release))},
     {schedulers, erlang:system_info(schedulers_online)}, {cpu, cpu()}].

cpu() ->
    Text = case file:read_file("/proc/cpuinfo") of {ok, Bytes} -> Bytes; _ -> <<>> end,
    case re:run(Text, "^model name\\s*:\\s*(.+)$",
                [multiline, {capture, all_but_first, binary}]) of
        {match, [Name]} -> Name;
        nomatch -> list_to_binary(erlang:system_info(system_architecture))
    end.

stock(#{floor := Rows}) ->
    [{Name, Samples} || {Name, Samples} <- Rows, Name =/= "reused", Name =/= "own"].

floor_p50(Name, #{floor := Rows}) ->
    {_, Samples} = lists:keyfind(Name, 1, Rows),
    p50(Samples).

stock_best(Report) -> lists:min([p50(Samples) || {_, Samples} <- stock(Report)]).

p50(Samples) -> bench_stats:us(bench_stats:median(Samples)).

%% Of the fastest runner that was measured.
ratios(#{runners := Runners} = Report) ->
    Ours = lists:min([maps:get(p50, proplists:get_value(total, Single))
                      || {_, #{single := Single}} <- Runners]),
    Reused = floor_p50("reused", Report),
    [{to_floor, Ours / floor_p50("own", Report)},
     {stock_to_ours, stock_best(Report) / Ours},
     {isolation_tax, (Ours - Reused) / Reused}].

%% ---- JSON -----------------------------------------------------------------------------------

%% @doc Microseconds, unless a name says otherwise.
-spec json(map()) -> bench_json:json().
json(#{prepare := Prepare, cold_start_ms := Cold, runners := Runners} = Report) ->
    {host() ++
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
         resident := #{rss := Rss}, deadline := Deadline, isolation := Isolation}) ->
    {[{single, {[{Part, object([p50, p90, p99], Summary)} || {Part, Summary} <- Single]}},
      {concurrent, [object([callers, requests_per_s, p50, p99], Row) || Row <- Concurrent]},
      {keep_resident_0_total, object([p50, p99], Keep0)},
      {host_call, object([idle, callers_14], HostCall)},
      {resident_bytes_per_instance, round(Rss)},
      {deadline_over_ms, object([p50, max], Deadline)},
      {isolation, object([globals, files], Isolation)}]}.

object(Keys, Map) -> {[{Key, maps:get(Key, Map)} || Key <- Keys]}.

%% ---- Markdown -------------------------------------------------------------------------------

%% @doc The report for people.
-spec markdown(map()) -> unicode:chardata().
markdown(#{runners := Runners} = Report) ->
    [heading(Report), prepared(Report),
     [[single(Runner), concurrent(Runner), others(Runner)] || Runner <- Runners],
     floor_rows(Report), ratio_rows(Report)].

heading(#{options := #{requests := Requests, seconds := Seconds}}) ->
    [{wasmtime, Version}, {otp, Otp}, {schedulers, Schedulers}, {cpu, Cpu}] = host(),
    ["# Every request in a fresh CPython\n\n",
     io_lib:format("Wasmtime ~ts, OTP ~ts, ~b schedulers, ~ts.~n"
                   "~b requests of each row with one caller, in turns; ~b s of each concurrent "
                   "row.~nPercentiles are of real samples. Every result was checked.~n",
                   [Version, Otp, Schedulers, Cpu, Requests, Seconds])].

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
                deadline := #{p50 := Late, max := Latest},
                isolation := #{globals := Globals, files := Files}}}) ->
    ["\n## Other figures, runner ", atom_to_list(Name), "\n\n",
     table(["figure", "value"],
           [["host call, one caller", [us(Idle), " us"]],
            ["host call, 14 callers", [us(Busy), " us"]],
            ["resident memory per live instance", mib(Rss)],
            ["the same without its share of shared pages", mib(Pss)],
            ["beyond timeout => 50 of an endless loop, p50", ms(Late)],
            ["the same, max of 20", ms(Latest)],
            ["isolation of globals", holds(Globals)],
            ["isolation of files", holds(Files)]])].

floor_rows(Report) ->
    Title = fun("reused") -> "a reused instance's handle";
               ("own") -> "a fresh instance from our memory";
               (Name) -> ["Wasmtime's pool, ", Name]
            end,
    #{floor := Rows} = Report,
    ["\n## The same work in plain Rust, same run\n\n",
     table(["row", "p50 us"], [[Title(Name), us(p50(Samples))] || {Name, Samples} <- Rows])].

ratio_rows(Report) ->
    [{to_floor, ToFloor}, {stock_to_ours, ToOurs}, {isolation_tax, Tax}] = ratios(Report),
    ["\n## Ratios\n\n",
     table(["ratio", "value", "meaning"],
           [["to_floor", ratio(ToFloor), "our request to a fresh instance in plain Rust"],
            ["stock_to_ours", ratio(ToOurs), "the best row of Wasmtime's pool to our request"],
            ["isolation_tax", ratio(Tax), "what our request adds to a reused instance's handle"]])].

holds(true) -> "yes";
holds(false) -> "NO".
